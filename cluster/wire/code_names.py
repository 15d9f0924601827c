"""Names of the files in a job's code, and whether a script finds its own among them."""

import os
from collections.abc import Set
from difflib import get_close_matches
from pathlib import PurePosixPath

_COMPARED = 500
"""Most names that a path is compared with: of thousands of long ones that would take minutes."""
_LONGEST = 128
"""Most characters of a path that is compared."""


def holds_entry(names: Set[str], path: str) -> bool:
    """Return whether a path is a file, a folder that Python runs, or behind a link that is sent.

    Args:
        names: of files and links, relative to the folder of the code, with `/`.
    """
    inside = PurePosixPath(os.path.normpath(path))
    return str(inside / "__main__.py") in names or any(
        str(part) in names for part in (inside, *inside.parents)
    )


def holds_folder(names: Set[str], path: str) -> bool:
    """Return whether a path is the folder of the code, one below it, or behind a link."""
    folder = os.path.normpath(path)
    below = any(name.startswith(folder + "/") for name in names)
    return folder == "." or below or holds_entry(names, path)


def near_name(names: Set[str], path: str) -> str | None:
    """Return the file that was probably meant: of the same name deeper down, or a similar one. Of
    many, those in the fewest folders are compared."""
    last = PurePosixPath(path).name
    ordered = sorted(names)
    deeper = next((name for name in ordered if PurePosixPath(name).name == last), None)
    if deeper is not None or len(path) > _LONGEST:
        return deeper
    compared = sorted(ordered, key=lambda name: name.count("/"))[:_COMPARED]
    near = get_close_matches(path, compared, n=1)
    return near[0] if near else None
