"""Training that goes on in the same processes when ranks come and go (docs/elastic.md).

Every rank holds the whole model. When one is lost, the collectives of the others break; they leave
the group, wait for the launch of a newer one, and join it. There they tell each other where they
stand. Who is furthest gives its state to those that lack it, and the step that broke off is taken
anew. Nobody restarts, and no checkpoint is read.
"""

import dataclasses
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer

from trainhall.distributed import breakable, process_group
from trainhall.distributed.broken import is_broken
from trainhall.distributed.compression.error_feedback import RESIDUAL, added
from trainhall.parallelism import choose
from trainhall.training.chain_writer import catch_up
from trainhall.training.finite import Numbers
from trainhall.training.handover import share_tensors
from trainhall.training.link import EXIT_STOPPED, Command
from trainhall.training.loop import Loop
from trainhall.training.membership import Leave, Membership
from trainhall.training.optim import build_optimizer
from trainhall.training.out_of_memory import in_words
from trainhall.training.place import Place
from trainhall.training.progress import Doing, Progress
from trainhall.training.pulse import Beat, Rows
from trainhall.training.recorder import peak_memory_bytes
from trainhall.training.standing import (
    Standing,
    is_told,
    is_unsettled,
    lacking,
    means_of,
    must_save,
    source_of,
)
from trainhall.training.undo import Undo
from trainhall.training.utilization import Utilization


class Regrouping(Exception):
    """All ranks of the group have finished a step and go on in a newer one."""


class Carried(NamedTuple):
    """What a rank goes on with beside tensors."""

    extra: dict[str, Any]
    """For `TrainingState.restore`."""
    last: dict[str, float]
    shared_sync: dict[str, Any]
    """What a compression of gradients keeps that is the same on all ranks."""
    owed: dict[str, Any]
    """What the ranks' next step has to add to its gradients, the same on all ranks."""
    gradients_told: int
    numbers: Numbers
    saved_step: int
    network: dict[str, Any] | None


class ElasticLoop(Loop):
    """A loop that can leave a group of ranks and join in another one."""

    def __init__(self, place: Place, membership: Membership) -> None:
        self.membership = membership
        self.begun = time.monotonic()
        self.standing = Standing(step=0)
        """What this rank brings to the next group."""
        self.carried: Carried | None = None
        """The rest of what it brings."""
        self.unsent: dict[str, Any] = {}
        """What a compression of gradients on this rank has not sent."""
        self.is_in_group = False
        self.is_prepared = False
        """The model is as all groups take it."""
        self.is_torn = False
        """Its tensors are partly those of another rank: nothing that it could go on with."""
        self.settled = 0
        self.saves_again = False
        super().__init__(place)

    def join_in(self, place: Place, model: nn.Module) -> None:
        self.model = model
        self.membership.progress = self.progress
        if place.launch.generation > 1:
            self.progress.doing(Doing.TAKING_OVER)
        begun = time.monotonic()
        if not self.is_prepared:
            self.model.to(self.device)
            trained = (p for p in self.model.parameters() if p.requires_grad)
            self.optimizer = build_optimizer(trained, self.training)
        standings = breakable.gather_objects(self.standing, process_group.cpu_group())
        source = source_of(standings)
        if source is not None:
            self.take_over(standings, source, place)
        place.events.rank = place.environment.rank
        super().join_in(place, model)
        if source is not None:
            self.carry_on()
        self.undo = Undo(self.strategy, self.sampler)
        self.is_in_group = self.is_prepared = True
        if source is not None:
            seconds = time.monotonic() - begun
            told = _in_words(standings, source, place.launch.generation, self.state.step)
            self.tell("note", {"message": f"{told}, in {seconds:.2g} s"})

    def take_over(self, standings: list[Standing], source: int, place: Place) -> None:
        """Have this rank go on from where the source stands. A collective."""
        rank = place.environment.rank
        if rank == source:
            if not is_told(standings, source):
                self.job_wide.tell_again()
            self.hand_in(means_of(standings, source), is_source=True)
        group = process_group.cpu_group()
        carried: Carried = breakable.broadcast_object(self.carried, source, group)
        needy = lacking(standings, source)
        if rank not in needy:
            # Should this group break up as well, this rank may be the next source: behind what it
            # hands in here it goes on as the present one would.
            self.carried = carried
        if rank != source and self.standing.rows is not None:
            self.hand_in(self.standing.rows, is_source=False)
        if needy:
            self.is_torn = rank in needy
            share_tensors(self.model, self.optimizer, source, self.progress.moved)
            self.confirm()
            self.is_torn = False
        if rank in needy:
            # What a lost rank had not sent is lost, and a rank that comes has sent everything. One
            # that is a step behind has sent more than it kept from before, and so begins anew.
            self.unsent = {}
        step = standings[source].step
        # What is still being uploaded will be refused: it was saved under the token of before.
        unsure = place.launch.checkpoint.upload or must_save(standings)
        self.saves_again = carried.saved_step > 0 and unsure
        self.carried = carried
        self.standing = Standing(
            step=step,
            told=step,
            settled=step - 1 if is_unsettled(standings, source) else step,
            gave_up_save=self.saves_again,
            was_first=self.standing.was_first,
        )

    def hand_in(self, means: Rows, *, is_source: bool) -> None:
        """Write what was measured since the last pulse of the old group."""
        first = self.standing.told + 1
        self.standing = dataclasses.replace(self.standing, told=self.standing.step, rows=None)
        if not len(means):
            return
        peak = peak_memory_bytes(self.device)
        columns = self.recorder.hand_in(means, peak, for_all=is_source)[0].columns
        if is_source:
            self.numbers.look(first, columns["loss"], columns["gradient_norm"])
        if is_source and self.carried is not None and self.training.reproducible:
            extra = self.carried.extra
            extra["chain"] = catch_up(
                extra["chain"],
                self.sampler,
                first,
                columns["loss"],
                columns["gradient_norm"],
                self.place.metrics.append,
            )

    def carry_on(self) -> None:
        """Take over, within the new group, what all ranks have in common."""
        carried = self.carried
        assert carried is not None
        self.state.restore(carried.extra)
        self.settled = self.standing.settled
        self.recorder.last = dict(carried.last)
        self.capture.go_on(carried.gradients_told)
        self.numbers = carried.numbers
        self.network = carried.network
        self.saving.saved_step = carried.saved_step
        self.pulse.begin(self.state.step)
        own = {k: t for k, t in self.unsent.items() if k.startswith(RESIDUAL)}
        self.strategy.load_sync_state({**carried.shared_sync, **own})
        owed = carried.owed
        if own and not own.keys() <= self.strategy.sync_state().keys():
            owed = added({k.removeprefix(RESIDUAL): t for k, t in own.items()}, owed)
        self.strategy.owe(owed)
        # Before anything of it is saved: what was handed in may say that it is worth nothing.
        self.check_numbers()

    def step_aside(self) -> None:
        """Keep what is to be kept, and let go of the present group, which is broken off."""
        if self.is_in_group:
            self.is_in_group = False
            self.loader.close()
            self.undo.take_back()
            self.strategy.clear_gradients()
            self.unsent = dict(self.strategy.sync_state())
            rows = self.recorder.rows()
            self.standing = Standing(
                step=self.state.step,
                told=self.state.step - len(rows),
                rows=rows,
                settled=self.settled,
                gave_up_save=self.saving.give_up() or self.saves_again,
                was_first=self.rank == 0,
            )
            self.carried = self.to_carry()
        # They refer to the group, to each other and to DDP.
        for name in ("strategy", "state", "optimizer_step", "loader", "undo", "pulse", "chain"):
            self.__dict__.pop(name, None)

    def to_carry(self) -> Carried:
        extra = {
            "step": self.state.step,
            "sampler": self.sampler.state(),
            "scaler": self.precision.state(),
            "chain": self.state.link,
            # Every rank draws anew: what some drew in the step that broke off is nobody's loss.
            "streams": [],
            "random": [],
        }
        return Carried(
            extra=extra,
            last=self.recorder.last,
            shared_sync={k: t for k, t in self.unsent.items() if not k.startswith(RESIDUAL)},
            owed=self.strategy.owed(),
            gradients_told=self.capture.told,
            numbers=self.numbers,
            saved_step=self.saving.saved_step,
            network=self.network,
        )

    def asked(self) -> choose.Asked:
        asked = super().asked()
        if self.is_prepared:
            # It was done to the model when this process joined its first group.
            asked = dataclasses.replace(asked, compile=False, recompute=False)
        return asked

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
            self.progress.doing(Doing.STARTING)  # to load may take any time
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
            self.pulse.begin(self.state.step)  # its first step is told soon
        return self.train(self.begun)

    def train_step(self) -> None:
        with self.undo.step():
            super().train_step()
        self.membership.stepped()

    def tell_first_step(self) -> None:
        # A step that a group before has taken, and left unsettled, is none of this one.
        if self.state.step > self.standing.step:
            super().tell_first_step()

    def confirm(self) -> None:
        # A GPU computes behind the host. What a collective that was broken off leaves there looks
        # like any other gradient, and the host would count the step. Alone nobody breaks one off.
        if self.device.type == "cuda" and self.world_size > 1:
            torch.cuda.current_stream(self.device).synchronize()
        self.membership.confirm()

    def settle(self) -> int | None:
        code = super().settle()
        self.settled = self.state.step
        return code

    def exchange(self) -> Beat:
        beat = super().exchange()
        regroups = beat.generation > self.membership.generation
        if regroups:
            # Behind this rank 0, which may leave, is known to have told all.
            process_group.say_goodbye()
            self.job_wide.forget()
        if self.control.command is Command.STOP:
            raise Leave
        if regroups:
            raise Regrouping
        return beat

    def command(self) -> Command:
        # A host that is left out has its ranks stopped: that is nothing to the others.
        return min(super().command(), Command.PAUSE)


def run(place: Place) -> int:
    """Train in one group of ranks after the other; the rank's exit code."""
    own = next(p for p in place.launch.ranks if p.rank == place.environment.rank)
    membership = Membership(place.launch, own, place.folder, place.device)
    loop: ElasticLoop | None = None
    progress: Progress | None = None
    while True:
        try:
            if progress is not None:
                progress.doing(Doing.MEETING)
            membership.join(place.launch, place.environment)
            if loop is None:
                loop = ElasticLoop(place, membership)
            else:
                loop.join_in(place, loop.model)
            code = loop.run()
            _say_goodbye()
            return code
        except Leave:
            return EXIT_STOPPED
        except Regrouping:
            why = "the ranks were to regroup"
        except (MemoryError, RuntimeError) as error:
            if not is_broken(error):
                step = loop.state.step + 1 if loop is not None and loop.is_in_group else None
                raise in_words(error, place, step) from error
            why = str(error)
        # Here the exception is gone, and with it what its frames referred to.
        if loop is not None:
            progress = loop.progress
        if progress is not None:
            progress.doing(Doing.REGROUPING)
        membership.break_off()
        if loop is not None:
            loop.step_aside()
            loop = None if loop.is_torn else loop
        membership.leave()
        try:
            launch, environment = membership.next(why)
        except Leave:
            return EXIT_STOPPED
        place = dataclasses.replace(place, launch=launch, environment=environment)


def _in_words(standings: list[Standing], source: int, generation: int, step: int) -> str:
    went = "1 rank" if len(standings) == 1 else f"{len(standings)} ranks"
    told = f"{went} went on as generation {generation} behind step {step}"
    needy = lacking(standings, source)
    if not needy:
        return told
    names = ", ".join(map(str, needy))
    return f"{told}; rank{'s' if len(needy) > 1 else ''} {names} got the state of rank {source}"


def _say_goodbye() -> None:
    """The work is done: who is lost now is missed by nobody."""
    try:
        process_group.say_goodbye()
    except RuntimeError as error:
        if not is_broken(error):
            raise
