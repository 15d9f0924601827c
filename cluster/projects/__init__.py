"""Projects, their members, and their deletion.

It imports `access`, `accounts`, `jobs`, `lifecycle`.
"""
