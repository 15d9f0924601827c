"""Checkpoint records, uploads and retention; imports `access`, `jobs`, `lifecycle` and `wire`."""
