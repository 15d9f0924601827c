"""Paths of the REST API, for the coordinator, its agents and the command line."""

API_PREFIX = "/api/v1"
AGENT_PREFIX = f"{API_PREFIX}/agent"
"""Path of the agents' part."""
