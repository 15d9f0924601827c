"""Containers of attempts: the engine that runs them, and processes inside."""
