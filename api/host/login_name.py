"""Login name of the user that runs this process."""

import getpass

_LONGEST = 128
"""Characters of an owner in a job spec."""


def login_name() -> str | None:
    """Return the name; None for a user without one, as in some containers, or with one that no
    owner may have: `LOGNAME` may be anything."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        return None
    return name if name.isprintable() and len(name) <= _LONGEST else None
