"""Replay of the recorded queue with other hardware, quotas or priorities.

It imports `lifecycle`, `nodes`, `queue`, `scheduling` and `snapshot`.
"""
