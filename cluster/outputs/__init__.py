"""Outputs of jobs: records, bytes and uploads; imports `access`, `lifecycle` and `wire`."""
