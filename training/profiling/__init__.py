"""Profiles of a running job's steps, on demand; imports `link`, `common` and `process`."""
