"""References: a folder of this host, or the id of something stored."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from trainhall.cli.base.errors import NotFoundError, UnreachableError, UsageError


def folder_meant(reference: str, wanted: str) -> Path | None:
    """Return the folder that is meant; None: it is an id.

    Args:
        wanted: what may be given, in words.

    Raises:
        UsageError: it is another kind of path, or there is nothing.
    """
    path = Path(reference)
    if reference and path.is_dir():
        return path
    if reference and path.exists():
        raise UsageError(f"{reference} is a file; give {wanted}")
    if "/" in reference or not reference:
        raise UsageError(f"there is no folder {reference or repr(reference)}; give {wanted}")
    return None


@contextlib.contextmanager
def taken_for_id(reference: str) -> Iterator[None]:
    """Add to a not-found error that a folder of that name would have been accepted, too."""
    try:
        yield
    except (NotFoundError, UnreachableError) as error:
        error.details.append(
            f"{reference} was read as an id: this host has no folder of that name."
        )
        raise


@contextlib.contextmanager
def taken_for_job(reference: str, command: str) -> Iterator[None]:
    """Add to a not-found error which commands accept the folder of that name."""
    try:
        yield
    except (NotFoundError, UnreachableError) as error:
        if Path(reference).is_dir():
            error.details.append(
                f"{reference} is a folder, but `{command}` takes a job of the coordinator; "
                f"for a folder use `trainhall ckpt export {reference} FILE`, or `trainhall "
                "ckpt verify` on a checkpoint's"
            )
        raise
