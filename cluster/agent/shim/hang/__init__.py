"""Hangs: the lagging rank, stack dumps, flight records; imports `outcome` of the shim."""
