"""Nodes: joining, heartbeats, faults and quarantine; imports `access`, `lifecycle` and `wire`."""
