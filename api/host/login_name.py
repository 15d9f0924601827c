"""Login name of the user that runs this process."""

import getpass


def login_name() -> str | None:
    """Return the name; None for a user without one, as in some containers."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None
