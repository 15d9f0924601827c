"""Preparation of an attempt: code, plan, warm parent; imports `coordinator_link`."""
