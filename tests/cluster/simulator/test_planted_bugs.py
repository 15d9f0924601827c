"""The simulator finds what it is for: bugs that are planted here, one at a time."""

from dataclasses import replace
from typing import Any

import pytest

from trainhall.cluster.agent import reconcile
from trainhall.cluster.agent.shim.rank_table import RankTable
from trainhall.cluster.checkpoints.service import CheckpointService
from trainhall.cluster.gateway import assignments
from trainhall.cluster.gateway.connections import Gateway
from trainhall.cluster.gateway.rank_events import EventContext, RankEvents
from trainhall.cluster.nodes.heartbeats import HeartbeatMonitor
from trainhall.cluster.reconcile import regroup
from trainhall.cluster.scheduling.placement import allocation_of
from trainhall.cluster.scheduling.quota_use import QuotaUse
from trainhall.cluster.scheduling.reservation import Timeline
from trainhall.cluster.scheduling.running import Running
from trainhall.cluster.simulator import agent, faults, run, shim, world
from trainhall.cluster.simulator.checks import invariants, lineages, pauses, preemption, regroupings
from trainhall.cluster.simulator.run import Result, run_seed
from trainhall.cluster.wire.protocol import Assignment
from trainhall.db.documents import Allocation
from trainhall.db.models import JobProgress
from trainhall.monitoring import store
from trainhall.training.checkpoint.format.names import parse_name
from trainhall.training.link.events import RankEvent
from trainhall.training.link.launch import Launch

MOST_SEEDS = 200


def first_problem(likely: int = 0) -> Result:
    """The first seed that finds the bug, beginning at one that found it before."""
    for seed in (*range(likely, MOST_SEEDS), *range(likely)):
        result = run_seed(seed)
        if result.problem:
            return result
    pytest.fail(f"not found by {MOST_SEEDS} seeds")


def regroupings_begin_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes wrong but that ranks are killed, of jobs that run."""
    monkeypatch.setattr(faults, "WEIGHTS", {"kill_rank": 1})
    monkeypatch.setattr(run, "SETTLED_SHARE", 1.0)


def test_a_missing_token_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a revoked attempt tells is taken like anybody's."""
    take = RankEvents._take

    async def unchecked(self: RankEvents, context: EventContext, event: RankEvent) -> None:
        if context.attempt.revoked and event.kind == "checkpoint":
            await self._checkpoint(context, event)
        else:
            await take(self, context, event)

    monkeypatch.setattr(RankEvents, "_take", unchecked)
    assert (first_problem(likely=4).problem or "").startswith(invariants.REVOKED)


def test_a_forgotten_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that has paused by itself pauses there again."""
    assign = assignments.assignment

    def forgetful(*args: Any) -> Assignment:
        return assign(*args[:5])

    monkeypatch.setattr(assignments, "assignment", forgetful)
    monkeypatch.setattr(faults, "WEIGHTS", {"jump_clock": 1})
    monkeypatch.setattr(world, "PAUSING_SHARE", 1.0)
    assert (first_problem().problem or "").startswith(pauses.PAUSES)


def test_a_missing_check_of_the_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ranks save in a generation that their attempt has left is recorded like anybody's."""
    record = CheckpointService.record

    async def unchecked(self, session, attempt, job, data):  # type: ignore[no-untyped-def]
        name, present = parse_name(data["name"]), attempt.generation
        assert name is not None
        attempt.generation = name.generation
        try:
            await record(self, session, attempt, job, data)
        finally:
            attempt.generation = present

    monkeypatch.setattr(CheckpointService, "record", unchecked)
    regroupings_begin_early(monkeypatch)
    assert (first_problem(likely=19).problem or "").startswith(lineages.VOID)


def test_simulator_detects_progress_by_any_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank's first word puts the job a step further than its ranks are."""
    started = RankEvents._started

    async def too_far(self: RankEvents, context: EventContext, event: RankEvent, data: Any) -> None:
        await started(self, context, event, data)
        progress = await context.session.get(JobProgress, context.job.id)
        assert progress is not None
        progress.step += 1

    monkeypatch.setattr(RankEvents, "_started", too_far)
    regroupings_begin_early(monkeypatch)
    assert (first_problem(likely=2).problem or "").startswith(lineages.VOID)


def test_a_forgotten_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new coordinator counts the time of nodes without heartbeats from before it began."""

    def seconds_since(self: HeartbeatMonitor, node_id: str) -> float:
        return self._clock.monotonic() - self._last_heartbeat.get(node_id, 0.0)

    monkeypatch.setattr(HeartbeatMonitor, "seconds_since", seconds_since)
    assert (first_problem(likely=1).problem or "").startswith(invariants.GRACE)


def test_an_edge_triggered_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node shall do is said once, when it changes, and not again until it is done."""
    monkeypatch.setattr(Gateway, "_resend_if_lost", lambda self, connection, report: None)
    assert (first_problem(likely=28).problem or "").startswith(invariants.LIVENESS)


def test_an_agent_that_forgets_its_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes by the folders it finds, of which a power cut may have taken one.

    Only where the coordinator has not heard of the launch either: that fault alone is injected.
    """

    def decide(wanted, found, launched):  # type: ignore[no-untyped-def]
        return reconcile.decide(wanted, found, {})

    monkeypatch.setattr(agent, "decide", decide)
    monkeypatch.setattr(faults, "WEIGHTS", {"fail_at_launch": 1})
    assert (first_problem().problem or "").startswith(invariants.LAUNCHES)


def test_simulator_detects_shims_without_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of `on_isolation: stop` alone, on hosts of which some are not heard."""
    spec_of = world._spec

    def stopping(*args):  # type: ignore[no-untyped-def]
        spec = spec_of(*args)
        recovery = spec.recovery.model_copy(update={"on_isolation": "stop"})
        return spec.model_copy(update={"recovery": recovery})

    def heed_nothing(self, lost_after):  # type: ignore[no-untyped-def]
        pass

    monkeypatch.setattr(world, "_spec", stopping)
    monkeypatch.setattr(shim.Shim, "_heed_isolation", heed_nothing)
    monkeypatch.setattr(faults, "WEIGHTS", {"isolate": 1})
    assert (first_problem(likely=14).problem or "").startswith(invariants.ISOLATED)


def test_simulator_detects_uncounted_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user holds already is not held against its next job. Nothing else goes wrong."""
    spec_of = world._spec

    def limited(random_, number, slots):  # type: ignore[no-untyped-def]
        spec = spec_of(random_, number, slots)
        workers = {"workers": min(slots, world.LIMITED_DEVICES)}
        resources = spec.resources.model_copy(update=workers)
        return spec.model_copy(
            update={"resources": resources, "user": world.LIMITED_USER, "priority": 0}
        )

    monkeypatch.setattr(world, "_spec", limited)
    monkeypatch.setattr(QuotaUse, "take", lambda self, job, count: None)
    monkeypatch.setattr(faults, "WEIGHTS", {"jump_clock": 1})
    assert (first_problem(likely=18).problem or "").startswith(invariants.QUOTAS)


def test_a_shim_that_forgets_who_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts a process for each rank of a later generation, and ranks are killed."""
    regroup_members = RankTable.regroup

    def forgetful(self: RankTable, launch: Launch) -> None:
        self.current, self._leaving = [], []
        regroup_members(self, launch)

    monkeypatch.setattr(RankTable, "regroup", forgetful)
    regroupings_begin_early(monkeypatch)
    assert (first_problem(likely=2).problem or "").startswith(regroupings.SURVIVORS)


def test_simulator_detects_ranks_numbered_per_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """In later generations, of which some span hosts."""

    def each_from_zero(placed, device):  # type: ignore[no-untyped-def]
        return Allocation(
            replace(host, ranks=tuple(replace(rank, rank=rank.local_rank) for rank in host.ranks))
            for host in allocation_of(placed, device)
        )

    monkeypatch.setattr(regroup, "allocation_of", each_from_zero)
    regroupings_begin_early(monkeypatch)
    assert (first_problem(likely=8).problem or "").startswith(regroupings.MEMBERS)


def test_simulator_detects_an_attempt_hiding_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first step is told a step too early. All that goes wrong is that shims are killed."""
    started = RankEvents._started

    async def too_early(
        self: RankEvents, context: EventContext, event: RankEvent, data: Any
    ) -> None:
        if data.get("resumed_from"):
            data = {**data, "resumed_from": data["resumed_from"] - 1}
        await started(self, context, event, data)

    monkeypatch.setattr(RankEvents, "_started", too_early)
    monkeypatch.setattr(faults, "WEIGHTS", {"kill_shim": 1, "jump_clock": 3})
    monkeypatch.setattr(run, "SETTLED_SHARE", 1.0)
    assert (first_problem(likely=7).problem or "").startswith(regroupings.STEPS)


def test_a_revoked_attempt_of_which_nothing_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even what its checkpoint has, that the next attempt goes on from."""
    monkeypatch.setattr(
        store, "superseded_from", lambda attempt, *_: 0 if attempt.revoked else None
    )
    assert (first_problem(likely=106).problem or "").startswith(regroupings.STEPS)


def test_simulator_detects_an_agent_keeping_leftovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host was not heard for long, and the job went on without it."""

    def kept(token, state, desired):  # type: ignore[no-untyped-def]
        return state.stage is reconcile.Stage.LIVE

    monkeypatch.setattr(reconcile, "_awaits_next_generation", kept)
    monkeypatch.setattr(faults, "WEIGHTS", {"isolate": 1})
    assert (first_problem(likely=12).problem or "").startswith(regroupings.LEFT_BEHIND)


@pytest.mark.parametrize(
    ("urgent", "likely", "invariant"),
    [(0.0, 21, preemption.RESERVATIONS), (1.0, 47, preemption.PREEMPTION)],
    ids=["equal", "urgent"],
)
def test_simulator_detects_devices_kept_forever(
    monkeypatch: pytest.MonkeyPatch, urgent: float, likely: int, invariant: str
) -> None:
    """What is reserved for a large job, or was freed for it, the next small one takes. Nothing
    else goes wrong."""
    monkeypatch.setattr(Timeline, "keep", lambda self, devices: {})
    monkeypatch.setattr(Timeline, "keep_all", lambda self, node_ids: None)
    monkeypatch.setattr(faults, "WEIGHTS", {"jump_clock": 1})
    monkeypatch.setattr(run, "CROWDED_SHARE", 1.0)
    monkeypatch.setattr(world, "URGENT_SHARE", urgent)
    assert (first_problem(likely).problem or "").startswith(invariant)


def test_room_that_anybody_has_to_make(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also jobs of the same priority, and of a higher one."""
    candidates = Running.candidates

    def all_of_them(self, allows, node_ids, places):  # type: ignore[no-untyped-def]
        return candidates(self, lambda job: True, node_ids, places)

    monkeypatch.setattr(Running, "candidates", all_of_them)
    assert (first_problem(likely=15).problem or "").startswith(preemption.PREEMPTION)
