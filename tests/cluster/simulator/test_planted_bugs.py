"""The simulator finds what it is for: bugs that are planted here, one at a time."""

import pytest

from trainhall.cluster.agent import reconcile
from trainhall.cluster.gateway import Gateway
from trainhall.cluster.hearing import Hearing
from trainhall.cluster.quota_use import QuotaUse
from trainhall.cluster.rank_events import RankEvents
from trainhall.cluster.simulator import faults, host, invariants, ranks, world
from trainhall.cluster.simulator.run import Result, run_seed

MOST_SEEDS = 200


def first_problem() -> Result:
    for seed in range(MOST_SEEDS):
        result = run_seed(seed)
        if result.problem:
            return result
    pytest.fail(f"not found by {MOST_SEEDS} seeds")


def test_a_missing_token_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a revoked attempt tells is taken like anybody's."""
    take = RankEvents._take

    async def unchecked(self, session, job, attempt, event):  # type: ignore[no-untyped-def]
        if attempt.revoked and event.kind == "checkpoint":
            await self._checkpoint(session, job, attempt, event)
        else:
            await take(self, session, job, attempt, event)

    monkeypatch.setattr(RankEvents, "_take", unchecked)
    assert (first_problem().problem or "").startswith(invariants.REVOKED)


def test_a_forgotten_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new coordinator counts the silence of nodes from before it began."""

    def silent_seconds(self: Hearing, node_id: str) -> float:
        return self._clock.monotonic() - self._heard.get(node_id, 0.0)

    monkeypatch.setattr(Hearing, "silent_seconds", silent_seconds)
    assert (first_problem().problem or "").startswith(invariants.GRACE)


def test_an_edge_triggered_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node shall do is said once, when it changes, and not again until it is done."""
    monkeypatch.setattr(Gateway, "_resend_if_lost", lambda self, connection, report: None)
    assert (first_problem().problem or "").startswith(invariants.LIVENESS)


def test_an_agent_that_forgets_its_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes by the folders it finds, of which a power cut may have taken one.

    Only where the coordinator has not heard of the launch either: that fault alone is injected.
    """

    def decide(wanted, found, launched):  # type: ignore[no-untyped-def]
        return reconcile.decide(wanted, found, {})

    monkeypatch.setattr(host, "decide", decide)
    monkeypatch.setattr(faults, "WEIGHTS", {"fail_at_launch": 1})
    assert (first_problem().problem or "").startswith(invariants.LAUNCHES)


def test_shims_that_go_on_however_long_they_hear_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of `on_isolation: stop` alone, on hosts of which some are not heard."""
    spec_of = world._spec

    def stopping(*args):  # type: ignore[no-untyped-def]
        spec = spec_of(*args)
        recovery = spec.recovery.model_copy(update={"on_isolation": "stop"})
        return spec.model_copy(update={"recovery": recovery})

    async def heed_nothing(self, lost_after):  # type: ignore[no-untyped-def]
        pass

    monkeypatch.setattr(world, "_spec", stopping)
    monkeypatch.setattr(ranks.Shim, "_heed_isolation", heed_nothing)
    monkeypatch.setattr(faults, "WEIGHTS", {"isolate": 1})
    assert (first_problem().problem or "").startswith(invariants.ISOLATED)


def test_quotas_that_nobody_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a project holds already is not held against its next job. Nothing else goes wrong."""
    spec_of = world._spec

    def limited(random_, number, slots):  # type: ignore[no-untyped-def]
        spec = spec_of(random_, number, slots)
        workers = {"workers": min(slots, world.LIMITED_DEVICES)}
        resources = spec.resources.model_copy(update=workers)
        return spec.model_copy(
            update={"resources": resources, "project": world.LIMITED_PROJECT, "priority": 0}
        )

    monkeypatch.setattr(world, "_spec", limited)
    monkeypatch.setattr(QuotaUse, "take", lambda self, job, count: None)
    monkeypatch.setattr(faults, "WEIGHTS", {"jump_clock": 1})
    assert (first_problem().problem or "").startswith(invariants.QUOTAS)
