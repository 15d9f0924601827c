"""Mock mode: hosts that speak the real protocol to the real coordinator, in memory.

They move only when a turn is taken, so that 45 minutes of history take seconds. It imports
`workload`, and not `world`.
"""
