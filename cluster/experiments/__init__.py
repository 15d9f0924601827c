"""Experiments, whose trials are ordinary jobs; imports `jobs` and `lifecycle`."""
