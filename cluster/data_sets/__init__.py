"""Fingerprints of data sets, as hosts found them; imports `access`, `lifecycle` and `wire`."""
