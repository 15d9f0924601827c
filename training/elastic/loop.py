"""Training that continues in the same processes when ranks come and go (docs/elastic.md).

Every rank holds the whole model. When one is lost, the collectives of the others break; they leave
the group, wait for the launch of a newer one, and join it. There they exchange their progress. The
rank that is furthest sends its state to those that lack it, and the step that broke off is taken
again. No rank restarts, and no checkpoint is read.
"""

import dataclasses
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainhall.distributed import breakable, process_group
from trainhall.distributed.broken import is_broken
from trainhall.distributed.compression.error_feedback import RESIDUAL, added
from trainhall.parallelism import choose
from trainhall.training.elastic.membership import LeaveRequested, Membership
from trainhall.training.elastic.regroup_state import (
    RegroupState,
    is_reported,
    is_unsettled,
    must_save,
    ranks_to_update,
    source_rank,
    unreported_means,
)
from trainhall.training.elastic.step_rollback import StepRollback
from trainhall.training.hash_chain.writer import catch_up
from trainhall.training.link.launch import Command
from trainhall.training.link.progress import Activity
from trainhall.training.link.progress_writer import Progress
from trainhall.training.link.status import EXIT_STOPPED
from trainhall.training.loop.loop import Loop
from trainhall.training.loop.metrics_recorder import peak_memory_bytes
from trainhall.training.loop.mfu import Utilization
from trainhall.training.loop.nonfinite_guard import NonFiniteGuard
from trainhall.training.loop.oom_report import explain_out_of_memory
from trainhall.training.optim.optimizers import build_optimizer
from trainhall.training.process.rank_context import RankContext
from trainhall.training.sync.step_sync import Rows, SyncResult


class RegroupRequested(Exception):  # noqa: N818 - control flow, no error
    """Request to continue in a newer group; all ranks of the group have finished a step."""


class TransferredState(NamedTuple):
    """State beside tensors that a rank takes into its next group."""

    extra: dict[str, Any]
    """For `TrainingState.restore`."""
    last: dict[str, float]
    shared_sync: dict[str, Any]
    """State of a gradient compression that is the same on all ranks."""
    pending_residual: dict[str, Any]
    """Residuals that the next step adds to its gradients, the same on all ranks."""
    answered_request: int
    nonfinite_guard: NonFiniteGuard
    saved_step: int
    network: dict[str, Any] | None


class ElasticLoop(Loop):
    """A loop that can leave a group of ranks and join in another one."""

    def __init__(self, context: RankContext, membership: Membership) -> None:
        self.membership = membership
        self.begun = time.monotonic()
        self.regroup_state = RegroupState(step=0)
        """The progress that this rank reports to the next group."""
        self.transferred: TransferredState | None = None
        """The rest of what it brings."""
        self.unsent: dict[str, Any] = {}
        """The residuals that a compression on this rank has not sent."""
        self.is_in_group = False
        self.is_prepared = False
        """The model is as all groups take it."""
        self.is_partially_copied = False
        """True while its tensors are partly those of another rank, and so unusable."""
        self.settled = 0
        self.saves_again = False
        super().__init__(context)

    def join_in(self, context: RankContext, model: nn.Module) -> None:
        self.model = model
        self.membership.progress = self.progress
        if context.launch.generation > 1:
            self.progress.set_activity(Activity.RECEIVING_STATE)
        begun = time.monotonic()
        if not self.is_prepared:
            self.model.to(self.device)
            trained = (p for p in self.model.parameters() if p.requires_grad)
            self.optimizer = build_optimizer(trained, self.training)
        states = breakable.gather_objects(self.regroup_state, process_group.cpu_group())
        source = source_rank(states)
        if source is not None:
            self.adopt_state(states, source, context)
        context.events.rank = context.environment.rank
        super().join_in(context, model)
        if source is not None:
            self.resume_in_group()
        self.rollback = StepRollback(self.strategy, self.sampler)
        self.is_in_group = self.is_prepared = True
        if source is not None:
            seconds = time.monotonic() - begun
            summary = _summarize(states, source, context.launch.generation, self.state.step)
            self.rank0_log.append_event("note", {"message": f"{summary}, in {seconds:.2g} s"})

    def adopt_state(self, states: list[RegroupState], source: int, context: RankContext) -> None:
        """Continue from the state of the source rank. A collective."""
        rank = context.environment.rank
        if rank == source:
            if not is_reported(states, source):
                self.rank0_log.replay()
            self.flush_rows(unreported_means(states, source), is_source=True)
        group = process_group.cpu_group()
        transferred: TransferredState = breakable.broadcast_object(self.transferred, source, group)
        outdated = ranks_to_update(states, source)
        if rank not in outdated:
            # Should this group break up as well, this rank may be the next source: after flushing
            # its rows it continues as the present one would.
            self.transferred = transferred
        if rank != source and self.regroup_state.rows is not None:
            self.flush_rows(self.regroup_state.rows, is_source=False)
        if outdated:
            self.copy_tensors(source, is_outdated=rank in outdated)
        # Uploads that are under way will be refused: they were saved under the token of before.
        may_be_lost = context.launch.checkpoint.upload or must_save(states)
        self.saves_again = transferred.saved_step > 0 and may_be_lost
        self.transferred = transferred
        step = states[source].step
        self.regroup_state = RegroupState(
            step=step,
            reported=step,
            settled=step - 1 if is_unsettled(states, source) else step,
            abandoned_save=self.saves_again,
            was_first=self.regroup_state.was_first,
        )

    def copy_tensors(self, source: int, *, is_outdated: bool) -> None:
        """Copy the source rank's weights and optimizer state to all ranks. A collective.

        Args:
            is_outdated: this rank's own are of another step.
        """
        self.is_partially_copied = is_outdated
        tensors = [*self.model.parameters(), *self.model.buffers()]
        for parameter in self.model.parameters():
            state = self.optimizer.state.get(parameter, {})
            tensors += [state[key] for key in sorted(state) if isinstance(state[key], Tensor)]
        breakable.broadcast(tensors, source, self.progress.advanced)
        self.confirm()
        self.is_partially_copied = False
        if is_outdated:
            # A lost rank's residual is lost, and a new rank has none. A rank that is a step behind
            # has sent more than it kept from before, and so starts without one.
            self.unsent = {}

    def flush_rows(self, means: Rows, *, is_source: bool) -> None:
        """Write what was measured since the last step sync of the old group."""
        first = self.regroup_state.reported + 1
        self.regroup_state = dataclasses.replace(
            self.regroup_state, reported=self.regroup_state.step, rows=None
        )
        if not len(means):
            return
        peak = peak_memory_bytes(self.device)
        columns = self.recorder.flush_rows(means, peak, for_all=is_source)[0].columns
        if is_source:
            self.nonfinite_guard.check(first, columns["loss"], columns["gradient_norm"])
        if is_source and self.transferred is not None and self.training.reproducible:
            extra = self.transferred.extra
            extra["chain"] = catch_up(
                extra["chain"],
                self.sampler,
                first,
                columns["loss"],
                columns["gradient_norm"],
                self.context.metrics.append,
            )

    def resume_in_group(self) -> None:
        """Take over, within the new group, what all ranks have in common."""
        transferred = self.transferred
        assert transferred is not None
        self.state.restore(transferred.extra)
        self.settled = self.regroup_state.settled
        self.recorder.last = dict(transferred.last)
        self.capture.resume_from(transferred.answered_request)
        self.nonfinite_guard = transferred.nonfinite_guard
        self.network = transferred.network
        self.saving.saved_step = transferred.saved_step
        self.step_sync.begin(self.state.step)
        own = {k: t for k, t in self.unsent.items() if k.startswith(RESIDUAL)}
        self.strategy.load_sync_state({**transferred.shared_sync, **own})
        pending_residual = transferred.pending_residual
        if own and not own.keys() <= self.strategy.sync_state().keys():
            pending_residual = added(
                {k.removeprefix(RESIDUAL): t for k, t in own.items()}, pending_residual
            )
        self.strategy.add_pending_residual(pending_residual)
        # Before anything of it is saved: the flushed rows may show that it is worth nothing.
        self.check_numbers()

    def leave_group(self) -> None:
        """Keep what is to be kept, and let go of the present group, which is broken off."""
        if self.is_in_group:
            self.is_in_group = False
            self.profiles.discard("the ranks regrouped")
            self.loader.close()
            self.rollback.roll_back()
            self.strategy.clear_gradients()
            self.unsent = dict(self.strategy.sync_state())
            rows = self.recorder.rows()
            self.regroup_state = RegroupState(
                step=self.state.step,
                reported=self.state.step - len(rows),
                rows=rows,
                settled=self.settled,
                abandoned_save=self.saving.abandon() or self.saves_again,
                was_first=self.rank == 0,
            )
            self.transferred = self.state_to_transfer()
        # They refer to the group, to each other and to DDP.
        for name in (
            "strategy",
            "state",
            "optimizer_step",
            "loader",
            "rollback",
            "step_sync",
            "chain",
        ):
            self.__dict__.pop(name, None)

    def state_to_transfer(self) -> TransferredState:
        extra = {
            "step": self.state.step,
            "sampler": self.sampler.state(),
            "scaler": self.precision.state(),
            "chain": self.state.link,
            # Every rank draws again: draws of the step that broke off are no loss.
            "streams": [],
            "random": [],
        }
        return TransferredState(
            extra=extra,
            last=self.recorder.last,
            shared_sync={k: t for k, t in self.unsent.items() if not k.startswith(RESIDUAL)},
            pending_residual=self.strategy.pending_residual(),
            answered_request=self.capture.answered,
            nonfinite_guard=self.nonfinite_guard,
            saved_step=self.saving.saved_step,
            network=self.network,
        )

    def strategy_config(self) -> choose.StrategyConfig:
        config = super().strategy_config()
        if self.is_prepared:
            # It was done to the model when this process joined its first group.
            config = dataclasses.replace(config, compile=False, recompute=False)
        return config

    def count_operations(self, model: nn.Module) -> Utilization | None:
        if not self.is_prepared:
            return super().count_operations(model)
        # By now it is no plain model: what is computed again would count twice.
        counted = self.utilization
        return counted and dataclasses.replace(counted, devices=self.world_size)

    def optimizer_of(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        return self.optimizer

    def run(self) -> int:
        if self.state.step == 0:
            self.progress.set_activity(Activity.STARTING)  # to load may take any time
            since = breakable.gather_objects(self.membership.since, process_group.cpu_group())
            self.resume(since=min(since))
            self.settled = self.state.step
            return self.train(self.begun)
        self.loaded_at = time.time()
        if self.saves_again:
            self.saving.saved_step = 0
            self.save()
            self.saves_again = False
        if self.settled < self.state.step:
            code = self.settle()
            if code is not None:
                return code
            self.step_sync.begin(self.state.step)  # its first step is reported soon
        return self.train(self.begun)

    def train_step(self) -> None:
        with self.rollback.step():
            super().train_step()
        self.membership.stepped()

    def report_first_step(self) -> None:
        # A step that a group before has taken, and left unsettled, is none of this one.
        if self.state.step > self.regroup_state.step:
            super().report_first_step()

    def confirm(self) -> None:
        # A GPU computes behind the host. What a collective that was broken off leaves there looks
        # like any other gradient, and the host would count the step. A lone rank never breaks one.
        if self.device.type == "cuda" and self.world_size > 1:
            torch.cuda.current_stream(self.device).synchronize()
        self.membership.confirm()

    def settle(self) -> int | None:
        code = super().settle()
        self.settled = self.state.step
        return code

    def exchange(self) -> SyncResult:
        result = super().exchange()
        regroups = result.generation > self.membership.generation
        if regroups:
            # Behind this rank 0, which may leave, is known to have reported all.
            process_group.final_barrier()
            self.rank0_log.acknowledge()
        if self.control.command is Command.STOP:
            raise LeaveRequested
        if regroups:
            raise RegroupRequested
        return result

    def command(self) -> Command:
        # A host that is left out has its ranks stopped: that is nothing to the others.
        return min(super().command(), Command.PAUSE)


def run(context: RankContext) -> int:
    """Train in one group of ranks after the other; the rank's exit code."""
    return _Run(context).run()


class _Run:
    """A rank's training over all the groups that it joins."""

    def __init__(self, context: RankContext) -> None:
        self._context = context
        own = next(p for p in context.launch.ranks if p.rank == context.environment.rank)
        self._membership = Membership(context.launch, own, context.folder, context.device)
        self._loop: ElasticLoop | None = None
        """None until a group was joined, and while its state is unusable."""
        self._progress: Progress | None = None

    def run(self) -> int:
        try:
            while True:
                end = self._train_in_group()
                if isinstance(end, int):
                    return end
                # Here the exception is gone, and with it what its frames referred to.
                self._leave_group()
                launch, environment = self._membership.next(end)
                self._context = dataclasses.replace(
                    self._context, launch=launch, environment=environment
                )
        except LeaveRequested:
            return EXIT_STOPPED

    def _train_in_group(self) -> int | str:
        """Join the group of the present launch and train; the exit code, or why the group ended."""
        context, loop = self._context, self._loop
        try:
            self._set_activity(Activity.JOINING)
            self._membership.join(context.launch, context.environment)
            if loop is None:
                loop = self._loop = ElasticLoop(context, self._membership)
            else:
                loop.join_in(context, loop.model)
            code = loop.run()
            _final_barrier()
            return code
        except RegroupRequested:
            return "the ranks must regroup"
        except (MemoryError, RuntimeError) as error:
            if not is_broken(error):
                step = loop.state.step + 1 if loop is not None and loop.is_in_group else None
                raise explain_out_of_memory(error, context, step) from error
            return str(error)

    def _leave_group(self) -> None:
        if self._loop is not None:
            self._progress = self._loop.progress
        self._set_activity(Activity.REGROUPING)
        self._membership.break_off()
        if self._loop is not None:
            self._loop.leave_group()
            self._loop = None if self._loop.is_partially_copied else self._loop
        self._membership.leave()

    def _set_activity(self, activity: Activity) -> None:
        if self._progress is not None:
            self._progress.set_activity(activity)


def _summarize(states: list[RegroupState], source: int, generation: int, step: int) -> str:
    resumed = "1 rank" if len(states) == 1 else f"{len(states)} ranks"
    summary = f"{resumed} resumed as generation {generation} after step {step}"
    updated = ranks_to_update(states, source)
    if not updated:
        return summary
    names = ", ".join(map(str, updated))
    return (
        f"{summary}; rank{'s' if len(updated) > 1 else ''} {names} got the state of rank {source}"
    )


def _final_barrier() -> None:
    """Wait for all once the work is done: ranks lost after this no longer matter."""
    try:
        process_group.final_barrier()
    except RuntimeError as error:
        if not is_broken(error):
            raise
