"""Checkpoint records, uploads and retention; imports `access`, `jobs` and `lifecycle`."""
