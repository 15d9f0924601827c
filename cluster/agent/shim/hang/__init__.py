"""Hangs: the lagging rank, stack dumps and flight records; imports `outcome` of the shim."""
