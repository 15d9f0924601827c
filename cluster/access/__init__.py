"""Roles in projects, and the rights of a caller; imports `db` and the job spec."""
