"""Hangs: the lagging rank, stack dumps, flight records.

It imports `outcome` and `rank_process` of the shim.
"""
