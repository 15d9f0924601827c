"""Fingerprints of the data sets of jobs, as hosts found them; imports `access`, `lifecycle` and `wire`."""
