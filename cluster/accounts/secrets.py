"""API tokens and other secrets of accounts as text; imports nothing of the coordinator."""

import hashlib
import re
import zlib

TOKEN_PREFIX = "th_"
MAX_TOKEN_SECONDS = 100 * 365 * 86_400
"""Longest life that a token is given in seconds."""
_TOKEN = re.compile(r"th_(?P<secret>[A-Za-z0-9_-]{43})(?P<checksum>[0-9a-f]{8})", re.ASCII)


def token_of(secret: str) -> str:
    """Return the API token of 32 random bytes in URL-safe text.

    Its prefix lets scanners of secrets find it, and its checksum tells typing errors apart.
    """
    return TOKEN_PREFIX + secret + _checksum(secret)


def is_token(text: str) -> bool:
    """Return whether a text has the form of an API token."""
    found = _TOKEN.fullmatch(text)
    return found is not None and found["checksum"] == _checksum(found["secret"])


def sha256(secret: str) -> str:
    """Return the hash under which a secret is stored: of 256 random bits, so a fast one will do."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _checksum(secret: str) -> str:
    return f"{zlib.crc32(secret.encode()):08x}"
