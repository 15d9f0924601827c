"""Failures of git: its own words, and whether another attempt may find it otherwise."""

import re

from trainhall.training.link.failure import Cause

_TAIL_BYTES = 4096
_MESSAGE_CHARACTERS = 500
_PASSWORD = re.compile(
    r"could not read (Username|Password)|Authentication failed|terminal prompts disabled"
    r"|HTTP Basic: Access denied|returned error: 40[13]"
)
_KEY = re.compile(r"Permission denied \(|Host key verification failed|No user exists for uid")
_UNREACHABLE = re.compile(
    r"Could not resolve|Failed to connect|Couldn't connect|Connection (refused|timed out|reset)"
    r"|Operation (timed out|too slow)|No route to host|Network is unreachable|early EOF"
    r"|unexpected disconnect|RPC failed|returned error: (429|5\d\d)|Could not read from remote"
)
_MISSING_REF = re.compile(r"couldn't find remote ref|not our ref|unadvertised object")


class CloneError(Exception):
    """A repository cannot be cloned; the message says why, in git's words.

    Args:
        is_passing: another attempt may succeed: the server was away, or the host had no room.
    """

    def __init__(
        self,
        message: str,
        *,
        log_tail: str = "",
        cause: Cause = Cause.USER_ERROR,
        is_passing: bool = False,
    ) -> None:
        super().__init__(message)
        self.log_tail = log_tail
        self.cause = cause
        self.is_passing = is_passing


class RefMissingError(CloneError):
    """The server does not give out a ref or commit by its name."""


def error_of(words: str, code: int, *, has_token: bool) -> CloneError:
    """Return the error that git's standard error describes.

    Args:
        code: its exit code.
        has_token: it was given an access token.
    """
    text = in_one_line(words) or f"git left with {code}"
    tail = words.encode()[-_TAIL_BYTES:].decode(errors="ignore")
    if _MISSING_REF.search(words):
        return RefMissingError(text, log_tail=tail)
    if _PASSWORD.search(words):
        remedy = (
            "the server does not accept the token" if has_token else
            "the repository is private or does not exist; store an access token with `trainhall "
            "secrets set NAME`, and name it in code.token"
        )  # fmt: skip
        return CloneError(f"{text}; {remedy}", log_tail=tail)
    if _KEY.search(words):
        remedy = "for ssh, hosts use the keys and known hosts of the user that jobs run as"
        return CloneError(f"{text}; {remedy}", log_tail=tail)
    is_unreachable = _UNREACHABLE.search(words) is not None
    cause = Cause.NOT_STARTED if is_unreachable else Cause.USER_ERROR
    return CloneError(text, log_tail=tail, cause=cause, is_passing=is_unreachable)


def in_one_line(words: str) -> str:
    """Return what git says of an error: the lines that begin with `fatal:`, `error:` or `remote:`,
    and ssh's before them."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "ssh:"))]
    first = next((i for i, line in enumerate(lines) if line in said), 0)
    chosen = [*lines[max(0, first - 1) : first], *said] if said else lines[-3:]
    text = "; ".join(dict.fromkeys(line.removeprefix("fatal: ") for line in chosen))
    return text if len(text) <= _MESSAGE_CHARACTERS else text[: _MESSAGE_CHARACTERS - 1] + "…"
