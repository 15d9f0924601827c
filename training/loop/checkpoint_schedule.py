"""The schedule of checkpoints, and their events."""

import time
from collections.abc import Callable
from pathlib import Path

from trainhall.distributed import process_group
from trainhall.training.checkpoint.checkpointer import Checkpointer, SaveAbandonedError
from trainhall.training.checkpoint.format.draft import Committed
from trainhall.training.checkpoint.loader import Loaded
from trainhall.training.link.launch import Launch
from trainhall.training.link.spool import EventSpool
from trainhall.training.loop.compression_state import PART
from trainhall.training.loop.train_state import TrainingState
from trainhall.training.sync.shared_storage_check import prove_shared


class SharedFolderRequiredError(RuntimeError):
    """Each host would have a part of every checkpoint, and none the whole."""


class CheckpointSchedule:
    """Saves when the spec says so, at pauses and at the end; ranks call it at equal steps."""

    def __init__(
        self,
        *,
        launch: Launch,
        state: TrainingState,
        events: EventSpool,
        rank: int,
        on_saved: Callable[[int], None],
    ) -> None:
        self._spec = launch.spec.checkpoint
        self._plan = launch.checkpoint
        self._state = state
        self._events = events
        self._rank = rank
        self._on_saved = on_saved
        self.saved_step = 0
        """The newest step that was saved, or at which the attempt began; 0: there is none."""
        self._saved_at = time.monotonic()
        self._folder = Path(launch.checkpoint.folder)
        degrees = state.strategy.degrees
        if launch.num_nodes > 1 and launch.checkpoint.upload and not state.strategy.replicated:
            raise SharedFolderRequiredError(
                f"strategy {launch.spec.parallelism.strategy} divides the model among the ranks, "
                f"which are on {launch.num_nodes} hosts: set checkpoint.path to a folder that all "
                "of them see, or ask for as many workers as one host has"
            )
        self._is_in_place = not launch.checkpoint.upload and launch.trace is None
        """Checkpoints stay where they are written."""
        self._checkpointer = Checkpointer(
            self._folder,
            launch.token,
            process_group.cpu_group(),
            self._committed,
            on_error=self._failed,
            replicated=state.strategy.replicated,
            mesh={name: size for name, size in degrees.sizes.items() if size > 1},
        )

    def check_folder(self) -> None:
        """See that checkpoints can be written where the spec says, and that all hosts share it.

        Raises:
            StorageNotWritableError: they cannot; what is trained until the first one would be lost.
            StorageNotSharedError: a checkpoint would be found on one host alone.
        """
        if self._is_in_place:
            prove_shared(self._folder, self._state.group)

    def prepare(self) -> None:
        """Plan and allocate once the optimizer has its state, if saves come while training."""
        if self._spec.every_steps is not None or self._spec.every_seconds is not None:
            self._checkpointer.prepare(self._state.tensors())

    def due(self, step: int) -> bool:
        """Return whether the spec names `step`."""
        every = self._spec.every_steps
        return every is not None and step % every == 0

    def save_requested(self) -> bool:
        """Return whether `every_seconds` have passed on rank 0, which decides at the next
        step sync."""
        every = self._spec.every_seconds
        if every is None or self._rank != 0:
            return False
        return time.monotonic() - self._saved_at >= every

    def save(self, metrics: dict[str, float]) -> None:
        """Begin to save the present step; training continues while it is written."""
        if self.saved_step == self._state.step:
            return
        self._checkpointer.save(self._state.step, self._state.snapshot(), metrics)
        # Only now: a rank may be lost while the others gather the state, and nothing is written.
        self.saved_step = self._state.step
        self._saved_at = time.monotonic()

    def finish(self) -> None:
        """Wait for the last save; see `Checkpointer.finish`."""
        self._checkpointer.finish()

    def abandon(self) -> bool:
        """Commit nothing any more: the token is not the job's from now on. Whether a save was under
        way on this rank."""
        return self._checkpointer.abandon()

    def load(self, names: list[str]) -> Loaded | None:
        """Continue from the first good checkpoint among `names`, those of this host; None if there
        are none on any rank. A collective.

        Raises:
            NoGoodCheckpointError: none is. Starting over silently would lose the work.
            StateMismatchError: the first good one is of another model or optimizer.
        """
        lacking = self._plan.lacking
        loaded = self._checkpointer.load(
            names, self._state.allocate_like, lacking=lacking, optional=PART
        )
        if loaded is not None:
            note = self._state.restore(loaded.extra)
            if note is not None and self._rank == 0:
                self._events.append("note", {"message": note})
            self.saved_step = self._state.step
        return loaded

    def _committed(self, committed: Committed) -> None:
        if self._rank == 0:
            self._events.append("checkpoint", committed.event())
            self._on_saved(committed.step)

    def _failed(self, error: Exception) -> None:
        if self._rank != 0:
            return
        if isinstance(error, SaveAbandonedError):  # the remaining ranks save again
            self._events.append("note", {"message": f"a checkpoint was not saved: {error}"})
        else:
            step = self._checkpointer.saving_step
            message = f"the checkpoint of step {step} was not saved: {self._checkpointer.error}"
            self._events.append("not_saved", {"step": step, "message": message})
