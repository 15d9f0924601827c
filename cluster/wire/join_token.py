"""The join token: a secret, and what the coordinator that made it is known by.

`thj_SECRET` or `thj_SECRET.FINGERPRINT`, with the SHA-256 of the certificate, or of its authority,
that a host verifies before it sends the secret.
"""

from dataclasses import dataclass

PREFIX = "thj_"
"""By which scanners for leaked secrets find one."""


@dataclass(frozen=True)
class JoinToken:
    secret: str
    """With its prefix; the coordinator is sent this part."""
    fingerprint: str | None = None
    """64 hexadecimal digits (`cluster.tls`)."""

    @classmethod
    def parse(cls, text: str) -> "JoinToken":
        """Take a token apart; what it has no part of is judged by the coordinator."""
        secret, _, fingerprint = text.strip().partition(".")
        return cls(secret, fingerprint or None)

    def __str__(self) -> str:
        return self.secret + (f".{self.fingerprint}" if self.fingerprint else "")
