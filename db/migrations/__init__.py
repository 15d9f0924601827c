"""Alembic migrations, run at the start of every coordinator; imports the tables."""

HEAD = "0007"
"""The newest revision: a database that has it needs no migration."""
