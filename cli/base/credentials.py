"""The API token that commands and `trainhall.Client` send to a coordinator.

`TRAINHALL_TOKEN`, else the one that is stored for its URL. A coordinator of this host that asks
for one nevertheless gets its first admin's token, if this user runs it.
"""

import os

from trainhall.api.host.credentials import admin_token, is_own_listener, stored_token
from trainhall.cli.base.errors import NotAllowedError
from trainhall.cluster.accounts.secrets import is_token


def token_for(url: str) -> str | None:
    """Return the token for the coordinator at a URL; None: this user has none.

    Raises:
        NotAllowedError: `TRAINHALL_TOKEN` is damaged. With another one in its place, commands
            would act as somebody else.
    """
    given = os.environ.get("TRAINHALL_TOKEN", "").strip()
    if not given:
        return stored_token(url)
    if not is_token(given):
        raise NotAllowedError(
            "TRAINHALL_TOKEN is no API token (th_…), or was cut off or mistyped; copy it again, or "
            "unset the variable"
        )
    return given


def token_of_own_coordinator(url: str) -> str | None:
    """Return the first admin's token of a coordinator that this user runs on this host.

    Of another user's, which may listen at the same port, there is none: it must not get it.
    """
    from trainhall.cli.base.running import data_dir_of  # it looks through all processes

    folder = data_dir_of(url) if is_own_listener(url) else None
    return admin_token(folder) if folder is not None else None
