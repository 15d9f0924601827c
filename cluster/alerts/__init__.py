"""Alerts: lasting conditions, losses, and the delivery of stored messages; imports `lifecycle`."""
