"""Uploads of what ranks wrote; imports `coordinator_link` and, from the shim, its files."""
