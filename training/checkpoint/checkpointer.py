"""Saving a training's state in the background, and loading the newest good one."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.metadata import MetadataIndex

from trainhall.training.checkpoint.format.draft import Committed, Draft
from trainhall.training.checkpoint.format.errors import CheckpointError, NotSavedError
from trainhall.training.checkpoint.format.manifest import FileRecord, Manifest
from trainhall.training.checkpoint.format.removal import remove_leftovers
from trainhall.training.checkpoint.index import INDEX, Index, StoredChunk, encode_index
from trainhall.training.checkpoint.loader import CheckpointLoader, Loaded
from trainhall.training.checkpoint.planning import (
    Plan,
    common_values,
    pieces_of,
    plan_full,
    plan_shards,
)
from trainhall.training.checkpoint.ranks import Group, Ranks, SingleProcess, clone_group, together
from trainhall.training.checkpoint.staging import Staging
from trainhall.training.checkpoint.state import EXTRA, FlatState, Plain, to_json, without_extra
from trainhall.training.checkpoint.storage import write_tensors
from trainhall.training.event_log import EventLogger
from trainhall.training.fencing import FencingToken

log = EventLogger(__name__)

WRITE_TIMEOUT = timedelta(minutes=30)
"""The time that the ranks of a sharded save wait for the slowest disk."""


class SaveAbandonedError(CheckpointError):
    """The ranks regrouped during a save, whose token they have no more."""

    def __init__(self) -> None:
        super().__init__("the ranks regrouped while it was written")


@dataclass
class _Save:
    """A save between the copy to host memory and the commit."""

    step: int
    plan: Plan
    copies: dict[MetadataIndex, Tensor]
    values: dict[str, Plain]
    rank_values: dict[int, dict[str, Plain]]
    extra: dict[str, Any]
    metrics: dict[str, float]
    created_at: str


class Checkpointer:
    """One rank's side of a job's checkpoints. All ranks call the same methods in the same order.

    A state is `{"model": {...}, "optimizer": {...}, ..., "extra": {...}}`: nested dicts and lists
    of tensors and plain values, and under `extra` plain data that is kept in the manifest as JSON.

    With `replicated` state (data parallelism) all ranks hold the same: rank 0 alone copies and
    writes, and a save needs no collective at all. What differs between ranks, their random state,
    the caller gathers into `extra`. Otherwise each rank writes its own shards; the ranks agree on
    the calling thread over `process_group` and in the background over a group of their own.

    Saves are written one at a time: a second one waits for the first.

    Args:
        folder: holds one folder per checkpoint, of this job alone; made at the first save. Unless
            `replicated`, all ranks must see the same storage under it.
        token: checkpoints are named by it, and none is ever replaced.
        process_group: one that carries host memory (Gloo); None for a process by itself.
        on_commit: called on rank 0 in the background thread, once the checkpoint is durable.
        on_error: called on each rank that knows of it (rank 0 at least), in the background thread
            or, where there is no memory for the copy, within `save`: the save came to nothing,
            earlier checkpoints are as they were, training may continue. By default the error is
            logged. Neither callback may call the checkpointer.
        mesh: degrees of parallelism, for the manifest; by default `{"data": world size}`.
    """

    def __init__(
        self,
        folder: Path,
        token: FencingToken,
        process_group: dist.ProcessGroup | None,
        on_commit: Callable[[Committed], None],
        *,
        on_error: Callable[[Exception], None] | None = None,
        replicated: bool = True,
        mesh: Mapping[str, int] | None = None,
    ) -> None:
        self.folder = folder
        self.token = token
        self._ranks: Ranks = SingleProcess() if process_group is None else Group(process_group)
        self._replicated = replicated or process_group is None
        if self._replicated or process_group is None:
            self._writers: Ranks = SingleProcess()
        else:
            self._writers = clone_group(process_group, WRITE_TIMEOUT)
        self._on_commit = on_commit
        self._on_error = on_error or _log_error
        self._mesh = dict(mesh) if mesh is not None else {"data": self._ranks.size}
        self._staging = Staging()
        self._plan: Plan | None = None
        self._thread: threading.Thread | None = None
        self.saving_step = 0
        """The step of the newest save."""
        self.error: str | None = None
        """Why that one came to nothing, as far as this rank knows."""
        self._cleaned = False
        self._abandoned = False
        self._committing = threading.Lock()
        """Held while a checkpoint gets its name."""
        self._loader = CheckpointLoader(folder, self._ranks, replicated=self._replicated)

    @property
    def _idle(self) -> bool:
        """Return whether this rank has nothing to write."""
        return self._replicated and self._ranks.rank != 0

    def prepare(self, state: Mapping[str, Any]) -> None:
        """Plan for such a state, and have the background thread allocate the memory for its copy.

        Without it the first save does both, and takes several times as long as later ones.
        """
        if self._idle:
            return
        self.wait()
        _, tensors = self._planned(without_extra(state))
        pieces, _ = pieces_of(tensors)
        shapes = [torch.empty_like(piece, device="meta") for piece in pieces]
        pinned = any(piece.is_cuda for piece in pieces)
        self._start("prepare", lambda: self._reserve(shapes, pinned))

    def save(
        self,
        step: int,
        state: Mapping[str, Any],
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Copy a state to host memory and write it in the background.

        The caller may change its tensors as soon as this returns. Metrics that are not finite are
        left out.

        Raises:
            TypeError: the state holds what a checkpoint cannot.
        """
        self.saving_step = step
        if self._idle:
            return
        # One that is still under way may fail: its error is not this one's.
        self.wait()
        self.error = None
        extra = to_json(dict(state.get(EXTRA, {})))
        flat = without_extra(state)
        plan, tensors = self._planned(flat)
        values, rank_values = common_values(self._plan_ranks.gather(flat.values))
        pieces, places = pieces_of(tensors)
        pinned = any(piece.is_cuda for piece in pieces)
        try:
            together(self._plan_ranks, lambda: self._staging.reserve(pieces, pinned=pinned))
        except (OSError, MemoryError, RuntimeError) as error:
            self._report(error)
            return
        copies = self._staging.copy(pieces)
        save = _Save(
            step=step,
            plan=plan,
            copies={index: copies[place] for index, place in places.items()},
            values=values,
            rank_values=rank_values,
            extra=extra,
            metrics={k: float(v) for k, v in (metrics or {}).items() if math.isfinite(v)},
            created_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        )
        self._start(f"step {step}", lambda: self._run(save))

    @property
    def saving(self) -> bool:
        """A save is under way on this rank."""
        return self._thread is not None and self._thread.is_alive()

    def abandon(self) -> bool:
        """Commit nothing any more, without waiting for what a save under way has to write.

        Behind this its checkpoint has its name or will never have it, and others may clean up.

        Returns:
            Whether a save was under way.
        """
        with self._committing:
            self._abandoned = True
        return self.saving

    def wait(self) -> None:
        """Wait until the save in progress is committed or has failed, and its callbacks have
        returned."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def finish(self) -> None:
        """Wait until the newest save is committed, on all ranks. A collective.

        Raises:
            NotSavedError: it is not; what was trained since the one before would be lost in
                silence.
        """
        self.wait()
        # The ranks of a script may be at different steps.
        mine = None if self.error is None else f"step {self.saving_step}: {self.error}"
        for rank, failed in enumerate(self._ranks.gather(mine)):
            if failed is not None:
                raise NotSavedError(f"rank {rank} could not save the checkpoint of {failed}")

    def load(
        self,
        names: Sequence[str],
        state: dict[str, Any] | Callable[[Manifest, Index], dict[str, Any]],
        *,
        lacking: Mapping[str, str] | None = None,
        optional: str | None = None,
    ) -> Loaded | None:
        """Load the first good checkpoint among `names`, on all ranks the same.

        Every file is hashed before any is used, once on every host: the ranks that see the same
        folder through the same kernel share the work. Tensors are filled in place and plain values
        replaced in place; `extra` is part of the result and is not looked for in `state`, which
        may also be made for each good candidate, the same on all ranks.
        Hosts without shared storage may have been given different names (one of them could not
        fetch the newest): only those that all ranks have are tried, in rank 0's order.

        Args:
            lacking: reasons for better ones that are not among this rank's `names`.
            optional: a key of the state under which a checkpoint may hold more than the state does.

        Returns:
            None if `names` is empty on all ranks.

        Raises:
            NoGoodCheckpointError: none of them can be loaded; it says why for each.
            StateMismatchError: the first good one does not fit; it names the first difference.
        """
        self.wait()
        return self._loader.load(names, state, lacking=lacking or {}, optional=optional)

    @property
    def _plan_ranks(self) -> Ranks:
        """Return the ranks that plan a save together, on the calling thread."""
        return SingleProcess() if self._replicated else self._ranks

    def _planned(self, flat: FlatState) -> tuple[Plan, dict[MetadataIndex, Tensor]]:
        """Return the plan of who writes what, and the tensors that this rank writes."""
        if not self._replicated:
            return plan_shards(flat, self._ranks)
        self._plan = plan_full(flat, self._plan)
        # Whole tensors: the plan need not be asked for each.
        items = self._plan.mine.items
        return self._plan, {i.index: flat.tensors[i.index.fqn].detach() for i in items}

    def _reserve(self, shapes: list[Tensor], pinned: bool) -> None:
        try:
            self._staging.reserve(shapes, pinned=pinned)
        except (OSError, MemoryError, RuntimeError) as error:
            # The first save tries again, and reports it if it fails again.
            log.warning("checkpoint_memory_not_reserved", error=error)

    def _start(self, what: str, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, name=f"checkpoint: {what}")
        self._thread.start()

    def _run(self, save: _Save) -> None:
        """Run the background thread of one save."""
        try:
            committed = self._write(save)
        except Exception as error:
            # Once others remove its folder, a save may fail in any way.
            self._report(SaveAbandonedError() if self._abandoned else error)
            return
        if self._writers.rank != 0:
            return
        try:
            self._on_commit(committed)
        except Exception:
            log.exception("checkpoint_callback_failed", checkpoint=committed.name)

    def _write(self, save: _Save) -> Committed:
        ranks, first = self._writers, self._writers.rank == 0
        draft = Draft.join(self.folder, self.token, save.step)
        created = False

        def create() -> None:
            nonlocal created
            if self._abandoned:
                raise SaveAbandonedError
            if first:
                self._remove_leftovers()
                Draft.create(self.folder, self.token, save.step)
                created = True

        def write() -> tuple[dict[MetadataIndex, StoredChunk], list[FileRecord]]:
            stored = write_tensors(draft, ranks.rank, save.plan.mine.items, save.copies)
            return stored, list(draft.files)

        def commit() -> Committed | None:
            if not first:
                return None
            storage = {index: chunk for stored, _ in written for index, chunk in stored.items()}
            metadata = replace(save.plan.metadata, storage_data=storage)
            index = Index(metadata, save.values, save.rank_values)
            draft.write(INDEX, [encode_index(index)])
            others = [record for _, files in written[1:] for record in files]
            manifest = self._manifest(save, [*draft.files, *others])
            return draft.commit(manifest, holding=self._still_wanted())

        try:
            together(ranks, create)
            written = together(ranks, write)
            committed = together(ranks, commit)[0]
        except Exception:
            if created:
                draft.abandon()
            raise
        if committed is None:
            raise CheckpointError("rank 0 committed nothing")
        return committed

    @contextmanager
    def _still_wanted(self) -> Iterator[None]:
        with self._committing:
            if self._abandoned:
                raise SaveAbandonedError
            yield

    def _manifest(self, save: _Save, files: list[FileRecord]) -> Manifest:
        return Manifest(
            job_id=self.token.job_id,
            attempt=self.token.attempt,
            generation=self.token.generation,
            step=save.step,
            created_at=save.created_at,
            world_size=self._ranks.size,
            mesh=self._mesh,
            metrics=save.metrics,
            extra=save.extra,
            files=files,
        )

    def _remove_leftovers(self) -> None:
        if not self._cleaned:
            self._cleaned = True
            for name in remove_leftovers(self.folder, self.token):
                log.warning("interrupted_checkpoint_removed", checkpoint=name)

    def _report(self, error: Exception) -> None:
        self.error = f"{type(error).__name__}: {error}"
        try:
            self._on_error(error)
        except Exception:
            log.exception("checkpoint_callback_failed", error=error)


def _log_error(error: Exception) -> None:
    log.error("checkpoint_not_saved", error=error, exc_info=error)
