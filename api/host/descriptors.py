"""File descriptors of this process: as many as the system lets it have."""

import resource
from contextlib import suppress

_MOST = 1 << 20
"""As many as Linux gives a process without further settings."""


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard one; returns the limit that holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS may refuse what it calls its limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return open_files_limit()


def open_files_limit() -> int:
    """Return how many files this process may have open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else soft
