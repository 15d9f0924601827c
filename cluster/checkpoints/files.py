"""The files of a checkpoint, where the coordinator sees them."""

import asyncio
import contextlib
import io
from collections.abc import Sequence
from pathlib import Path

from trainhall.cluster.access.limited import Limited
from trainhall.cluster.access.roles import Action
from trainhall.cluster.checkpoints.lineage import STORE
from trainhall.cluster.checkpoints.rows import load_checkpoint
from trainhall.cluster.checkpoints.store import CheckpointStore
from trainhall.cluster.errors import NotFoundError, WrongStateError
from trainhall.db.database import Database
from trainhall.training.checkpoint.format.errors import BadCheckpointError
from trainhall.training.checkpoint.format.manifest import FileRecord, open_within, read_files


class CheckpointFiles(Limited):
    def __init__(self, db: Database, store: CheckpointStore) -> None:
        self._db = db
        self._store = store

    async def list(self, checkpoint_id: str) -> Sequence[FileRecord]:
        """List every file of a checkpoint, the manifest last.

        Raises:
            NotFoundError: there is no such checkpoint that the caller sees.
            WrongStateError: it was deleted, is damaged, or the coordinator cannot see its files.
        """
        return await self._list(checkpoint_id, await self.folder(checkpoint_id))

    async def open(self, checkpoint_id: str, path: str) -> io.FileIO:
        """Open one of a checkpoint's files; nothing else in its folder is served.

        A job may write to its folder on shared storage: only the opened file is sure to be the one
        that was checked, not what its path leads to a moment later.

        Raises:
            ForbiddenError: the caller may not read its bytes.
            NotFoundError: it is none of them, or not there any more.
            WrongStateError: as `list`.
        """
        folder = await self.folder(checkpoint_id, Action.READ_FILES)
        if path in {file.path for file in await self._list(checkpoint_id, folder)}:
            with contextlib.suppress(OSError):
                return await asyncio.to_thread(open_within, folder, path)
        raise NotFoundError("checkpoint file", f"{checkpoint_id}/{path}"[:160])

    async def _list(self, checkpoint_id: str, folder: Path) -> Sequence[FileRecord]:
        try:
            return await asyncio.to_thread(read_files, folder)
        except BadCheckpointError as error:
            detail = f"checkpoint {checkpoint_id} is damaged: {error}"
            raise WrongStateError(detail, "corrupt") from None

    async def folder(self, checkpoint_id: str, action: Action = Action.READ) -> Path:
        """Return the folder of a checkpoint's files, which the coordinator sees, for an action of
        the caller."""
        async with self._db.session() as session:
            row, _ = await load_checkpoint(session, self._caller, checkpoint_id, action)
        if row.state in ("deleting", "deleted"):
            raise WrongStateError(f"checkpoint {checkpoint_id} is {row.state}", row.state)
        if row.location.startswith(STORE):
            return self._store.folder(row.job_id, row.name)
        folder = Path(row.location)
        if not await asyncio.to_thread(is_seen, folder):
            raise WrongStateError(
                f"the coordinator does not see {folder}; do this on a host that does, with the "
                f"folder's name: `trainhall ckpt verify {folder}`",
                row.state,
            )
        return folder


def is_seen(folder: Path) -> bool:
    """Return whether the storage of a folder is mounted; the folder itself may be gone from it."""
    try:
        return folder.parent.is_dir()
    except OSError:
        # It may not be entered, or its server does not answer.
        return False
