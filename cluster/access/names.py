"""Names of users, groups and projects.

They are Unicode's composed form (NFC), so that equal letters are equal names, and have no
characters that change how a line of text is shown.
"""

import unicodedata
from collections.abc import Collection, Iterable

from trainhall.cluster.errors import ConflictError, InvalidValueError

MAX_NAME = 128
_FORBIDDEN = frozenset("/\\:\N{REPLACEMENT CHARACTER}")
"""A name is a segment of a path, and `group:NAME` is a member of a project; the last one stands for
what could not be decoded."""
RESERVED = frozenset({".", "..", "me", "another user"})


def composed(name: str) -> str:
    """Return a name in the form in which it is stored."""
    return unicodedata.normalize("NFC", name)


def checked_name(name: str, field: str = "name") -> str:
    """Return a new name in the form in which it is stored.

    Args:
        field: where it was given.

    Raises:
        InvalidValueError: it is too long, reserved, or has characters that names may not have.
    """
    name = composed(name)
    if (problem := _problem(name)) is not None:
        raise InvalidValueError(field, name, problem)
    return name


def new_name(name: str) -> str:
    """Return a new name of the settings in the form in which it is stored.

    Raises:
        ValueError: it is too long, reserved, or has characters that names may not have.
    """
    name = composed(name)
    if (problem := _problem(name)) is not None:
        raise ValueError(problem)
    return name


def _problem(name: str) -> str | None:
    if not 1 <= len(name) <= MAX_NAME:
        return f"must have 1 to {MAX_NAME} characters"
    if name != name.strip():
        return "must not begin or end with a space"
    for position, character in enumerate(name):
        if not is_allowed(character):
            return f"must not contain {character!a} (character {position + 1})"
    return f"{name!r} is reserved" if name.casefold() in RESERVED else None


def is_allowed(character: str) -> bool:
    """Return whether names may have a character."""
    # Categories C: controls, those of the direction of text, and halves of surrogate pairs.
    kind = unicodedata.category(character)[0]
    return character not in _FORBIDDEN and kind != "C" and (kind != "Z" or character == " ")


def check_unused(
    kind: str, name: str, taken: Iterable[str], *, removed: Collection[str] = ()
) -> None:
    """Check that no name differs from this one by case alone.

    Args:
        removed: those of users who were removed.

    Raises:
        ConflictError: one does.
    """
    folded = _folded(name)
    for other in taken:
        if _folded(other) == folded and other in removed:
            raise ConflictError(
                f"this is the name of the user {other!r}, who was removed; an admin restores them "
                f"with `trainhall users set {other} --restore`, or use another name"
            )
        if _folded(other) == folded:
            raise ConflictError(f"there is a {kind} {other!r} already; use another name")


def _folded(name: str) -> str:
    return composed(name.casefold())
