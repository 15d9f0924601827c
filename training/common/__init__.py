"""Shared parts of `training`: sample order, step times, random state, hashes."""
