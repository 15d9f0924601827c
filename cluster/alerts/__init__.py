"""Alerts: lasting conditions, losses, and the delivery of stored messages; imports `access`,
`accounts` and `lifecycle`."""
