"""Locks of the Python environments of jobs; imports `access`, `lifecycle` and `wire`."""
