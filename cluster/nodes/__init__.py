"""Nodes: joining, heartbeats, faults and quarantine; imports `lifecycle` and `wire`."""
