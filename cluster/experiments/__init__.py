"""Experiments, whose trials are ordinary jobs; imports `access`, `jobs` and `lifecycle`."""
