"""Trust of commands in their coordinator's certificate."""

import os

import httpx

from trainhall.cli.base import config
from trainhall.cli.base.errors import UnreachableError, UsageError
from trainhall.cluster.tls import (
    Anchor,
    UntrustedError,
    describe_refusal,
    find_anchor,
    is_https,
    read_anchor,
)


def anchor_of(url: str) -> Anchor | None:
    """Return what was set (TRAINHALL_TLS_CA), else the authority of this host's own coordinator;
    None: public ones.

    Raises:
        UsageError: what was set cannot be used.
        UnreachableError: the coordinator has to be asked for it, and does not answer.
    """
    if not is_https(url):
        return None
    given = config.tls_ca()
    try:
        return find_anchor(url, given) if given is not None else _of_this_host(url)
    except UntrustedError as error:
        raise UsageError(str(error)) from None
    except httpx.TransportError as error:
        why = describe_refusal(error, url) or str(error) or type(error).__name__
        raise UnreachableError(f"no coordinator answers at {url} ({why})") from None


def _of_this_host(url: str) -> Anchor | None:
    """Return the authority of a self-signed certificate of this user's coordinator."""
    from trainhall.cli.base.running import data_dir_of  # it looks through all processes

    folder = data_dir_of(url)
    path = folder / "tls" / "ca.pem" if folder is not None else None
    # Root sees the processes of all users.
    is_ours = path is not None and path.is_file() and path.stat().st_uid == os.geteuid()
    return read_anchor(path) if path is not None and is_ours else None
