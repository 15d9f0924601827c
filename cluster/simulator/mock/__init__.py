"""Mock mode: simulated hosts that go through 45 minutes in virtual time, then live in real time.

It imports `cluster` and `workload`, and not `world`.
"""
