"""API tokens of this user by the URL of a coordinator, in `~/.config/trainhall/credentials`.

Commands and `trainhall.Client` send them. `trainhall login` stores one, and a coordinator that
starts stores one for its own user, until it ends.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

ADMIN_TOKEN = "admin.token"
"""Name of the file in the data folder with the first admin's token."""
_LONGEST = 1024
_LISTENS = "0A"
"""State of a listening socket in /proc/net/tcp."""


def credentials_file() -> Path:
    """Return the path of the file, which need not exist."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "trainhall" / "credentials"


def stored_token(url: str) -> str | None:
    """Return the token that is stored for the coordinator at a URL.

    One that a coordinator stored for its own user is for that user's coordinator alone: had it been
    killed, another user of the host could listen there.
    """
    entry = _read(credentials_file()).get(_key(url))
    if entry is None or (entry.get("own") and not is_own_listener(url)):
        return None
    return entry["token"]


def store_token(url: str, token: str, *, own: bool = False, token_id: str | None = None) -> None:
    """Store a token in place of any other for this URL.

    Args:
        own: it is of a coordinator that this user runs on this host.
        token_id: its id, if it was made for these commands alone: a logout revokes it.

    Raises:
        OSError: the file cannot be written.
    """
    with _changed() as tokens:
        entry = {"token": token} | ({"own": "yes"} if own else {})
        tokens[_key(url)] = entry | ({"id": token_id} if token_id is not None else {})


def stored_token_id(url: str) -> str | None:
    """Return the id of the stored token, if it was made for these commands alone."""
    token_id = _read(credentials_file()).get(_key(url), {}).get("id")
    return token_id if isinstance(token_id, str) else None


def remove_token(url: str, token: str | None = None) -> bool:
    """Remove the token for this URL; return whether there was one.

    Args:
        token: remove it only if it is this one; None: remove any.

    Raises:
        OSError: the file cannot be written.
    """
    if not credentials_file().exists():
        return False
    with _changed() as tokens:
        found = tokens.get(_key(url))
        if found is None or token not in (None, found["token"]):
            return False
        del tokens[_key(url)]
        return True


def admin_token(data_dir: Path) -> str | None:
    """Return the first admin's token of the coordinator whose data is in this folder.

    None: there is no such file, or it is not this user's to read.
    """
    try:
        return (data_dir / ADMIN_TOKEN).read_text(encoding="ascii")[:_LONGEST].strip() or None
    except (OSError, ValueError):
        return None


def write_private(path: Path, text: str) -> None:
    """Replace a file, at once and as a whole, by one that only this user can read.

    Raises:
        OSError: it cannot be written.
    """
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(fd)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def is_own_listener(url: str) -> bool:
    """Return whether no other user but root listens at the port of a URL on this host.

    True where the system does not say who listens, as elsewhere than on Linux.
    """
    port = urlsplit(url).port
    users = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(table, encoding="ascii") as lines:
            for line in lines:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    users.add(int(fields[7]))
    return users <= {os.getuid(), 0}


@contextmanager
def _changed() -> Iterator[dict[str, dict[str, str]]]:
    """Change the file under a lock: several coordinators may start at once."""
    path = credentials_file()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tokens = _read(path)
        before = dict(tokens)
        yield tokens
        if tokens != before:
            write_private(path, json.dumps(tokens, indent=2) + "\n")
    finally:
        os.close(lock)


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {
        url: entry
        for url, entry in values.items()
        if isinstance(entry, dict) and isinstance(entry.get("token"), str)
    }


def _key(url: str) -> str:
    """Return a URL in the one way in which it is stored."""
    parts = urlsplit(url)
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}{parts.path.rstrip('/')}"
