"""URLs of the REST API, for the coordinator, its agents and the command line."""

from urllib.parse import urlsplit

API_PREFIX = "/api/v1"
AGENT_PREFIX = f"{API_PREFIX}/agent"
"""Path of the agents' part."""


def is_base_url(url: str) -> bool:
    """Return whether clients could reach a coordinator at a URL, such as `http://lab:8000`."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port, or of an IPv6 address
        return False
