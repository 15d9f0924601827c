"""The caller of a request, as routes and services get it."""

from dataclasses import dataclass
from typing import Literal

How = Literal["none", "token", "session"]


@dataclass(frozen=True)
class Principal:
    """User and credential that a request comes from."""

    user: str
    """Name of the user."""
    is_admin: bool
    how: How
    """The credential; `none` where the coordinator asks for none."""
    user_id: str = ""
    """Empty without a credential."""
    credential_id: str = ""
    """Id of the API token or of the session."""
