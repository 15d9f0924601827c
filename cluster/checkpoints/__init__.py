"""Checkpoint records, uploads and retention; imports `jobs`."""
