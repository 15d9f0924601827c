"""Checkpoint records, uploads and retention; imports `jobs` and `lifecycle`."""
