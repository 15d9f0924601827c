"""Experiments, whose trials are ordinary jobs; imports `access`, `jobs`, `lifecycle`
and `secrets`."""
