"""Deleting checkpoints, and what dead attempts left behind. Free of torch."""

import contextlib
import shutil
from pathlib import Path

from trainhall.training.checkpoint.format.draft import fsync_folder
from trainhall.training.checkpoint.format.errors import BadCheckpointError, NotRemovedError
from trainhall.training.checkpoint.format.manifest import read_manifest
from trainhall.training.checkpoint.format.names import (
    MANIFEST,
    CheckpointName,
    is_removed_name,
    job_tag,
    parse_name,
    parse_partial,
    removed_name,
    scan,
)
from trainhall.training.checkpoint.format.retention import Candidate, verdicts
from trainhall.training.fencing import FencingToken
from trainhall.training.spec.recovery import CheckpointSpec


def remove_checkpoint(folder: Path) -> None:
    """Delete a checkpoint, damaged or not. A crash on the way leaves nothing that looks like one.

    Raises:
        NotRemovedError: it is not named like a checkpoint, is a link, or holds no manifest.
        OSError: the disk does not let it go; it may be called again.
    """
    _name_of(folder)
    if folder.is_symlink() or not folder.is_dir():
        raise NotRemovedError(f"{folder} is not a folder")
    manifest = folder / MANIFEST
    if manifest.is_symlink() or not manifest.is_file():
        raise NotRemovedError(f"{folder} holds no {MANIFEST}, so it is not a checkpoint")
    vanish(folder)


def vanish(folder: Path) -> None:
    """Delete a folder named like a checkpoint, whatever it holds; that it is gone already is fine.

    It disappears by a rename first, so that no reader ever sees half of it. A deletion of the same
    name that was cut short is finished.

    Raises:
        NotRemovedError: it is not named like a checkpoint.
        OSError: the disk does not let it go; it may be called again.
    """
    tombstone = folder.with_name(removed_name(_name_of(folder)))
    _remove_tree(tombstone)
    try:
        folder.rename(tombstone)
    except FileNotFoundError:
        return
    fsync_folder(folder.parent)
    _remove_tree(tombstone)


def _remove_tree(path: Path) -> None:
    # It may be gone, or another thread may be removing it at this moment.
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def _name_of(folder: Path) -> CheckpointName:
    name = parse_name(folder.name)
    if name is None:
        raise NotRemovedError(
            f"{folder} is not named like a checkpoint (such as step-00000120-a1-g1)"
        )
    return name


def remove_leftovers(folder: Path, token: FencingToken) -> list[str]:
    """Remove what is left of interrupted saves and deletions; returns the names that are gone.

    Of the temporary folders only those of the same job and of an older (attempt, generation) go:
    such a writer is dead or revoked, and may commit nothing any more. A folder that cannot be
    removed is left for the next time.
    """
    try:
        entries = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    tag, gone = job_tag(token.job_id), []
    for path in entries:
        partial = parse_partial(path.name)
        stale = (
            partial is not None
            and partial.job_tag == tag
            and (partial.name.attempt, partial.name.generation) < (token.attempt, token.generation)
        )
        if (stale or is_removed_name(path.name)) and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
            if not path.exists():
                gone.append(path.name)
    return gone


def retire(folder: Path, rule: CheckpointSpec) -> None:
    """Delete the checkpoints in a folder of one job that its rule does not keep.

    One whose manifest cannot be read is left alone, and takes no place from a good one. What the
    disk does not let go stays for the next time.
    """
    candidates: list[tuple[Path, Candidate]] = []
    for found in scan(folder):
        with contextlib.suppress(BadCheckpointError):
            metrics = read_manifest(found.path).metrics
            candidates.append((found.path, Candidate(found.name, metrics)))
    decided = verdicts(rule, [candidate for _, candidate in candidates])
    for (path, _), verdict in zip(candidates, decided, strict=True):
        if not verdict.keep:
            with contextlib.suppress(NotRemovedError, OSError):
                remove_checkpoint(path)
