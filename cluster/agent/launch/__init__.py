"""Preparation and start of an attempt: code, plan, warm parent; imports `shipping`."""
