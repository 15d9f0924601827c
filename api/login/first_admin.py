"""The first admin of a coordinator, and how its own user logs in."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from trainhall.api.host.credentials import (
    ADMIN_TOKEN,
    admin_token,
    remove_token,
    store_token,
    write_private,
)
from trainhall.api.startup import StartupError
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.accounts.service import AccountService

log = structlog.get_logger(__name__)

LINK_SECONDS = 600.0
"""Life of the login link that is printed at a start: whoever started it may look later."""
UNNAMED = "admin"
"""Name of the first admin where the user who starts the coordinator has none."""


async def ensure_admin_token(
    accounts: AccountService, admin: Principal, folder: Path | None, coordinator_id: str
) -> str:
    """Return the first admin's token, which is kept in the data folder.

    If the file was removed there is a new one, and the old one is void.

    Args:
        folder: None: it is kept nowhere.

    Raises:
        StartupError: the file cannot be written.
    """
    if folder is not None and (known := admin_token(folder)) is not None:
        found = await accounts.of_token(known)
        if found is not None and found.is_admin:
            return known
    name = f"{ADMIN_TOKEN} of {coordinator_id[:12]}"
    token = await accounts.limited_to(admin).replace_token(name)
    if folder is not None:
        path = folder / ADMIN_TOKEN
        try:
            write_private(path, token + "\n")
        except OSError as error:
            raise StartupError(f"cannot write {path}: {error.strerror}") from error
    return token


async def login_link(accounts: AccountService, admin: Principal, url: str) -> str:
    """Return a link that logs one browser in as the admin."""
    made = await accounts.limited_to(admin).new_code(LINK_SECONDS)
    return f"{url}/login#code={made.code}"


def print_login_link(link: str) -> None:
    """Print the link of a start."""
    sys.stdout.write(f"Log in at {link}  (works once, for 10 minutes)\n")
    sys.stdout.write(
        "Jobs that run as this user, too, can read its credentials (docs/security.md).\n"
    )
    sys.stdout.flush()


@contextmanager
def stored_for_own_user(url: str | None, token: str) -> Iterator[None]:
    """Keep a token where the commands of the user find it who runs this process.

    Args:
        url: at which the coordinator listens; None: it is not known, and nothing is stored.
    """
    if url is None or not _done(lambda: store_token(url, token, own=True)):
        yield
        return
    try:
        yield
    finally:
        _done(lambda: remove_token(url, token))


def _done(change: Callable[[], object]) -> bool:
    try:
        change()
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        log.warning("credentials_not_stored", error=str(error))
        return False
    return True
