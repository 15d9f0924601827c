"""Alembic migrations, and what makes an empty database; run at the start of every coordinator.
It imports the tables."""

HEAD = "0007"
"""The newest revision: a database that has it needs no migration."""
