"""Hangs over several hosts."""

from trainhall.cluster.lifecycle.host_report import HostReport
from trainhall.cluster.reconcile.hang_policy import hang_of
from trainhall.cluster.snapshot.model import HostFacts
from trainhall.training.link.failure import Cause
from trainhall.training.link.stall import RankStall, Stall


def rank(number: int, step: int = 10, parts: int = 3, **more: object) -> RankStall:
    activity = "in the forward pass"
    fields = {
        "rank": number,
        "step": step,
        "parts": parts,
        "activity": activity,
        "idle": 31.0,
        **more,
    }
    return RankStall.model_validate(fields)


def host(name: str, *ranks: RankStall, generation: int = 1) -> HostFacts:
    stall = Stall(limit=30, behind=None, ranks=list(ranks)) if ranks else None
    return HostFacts(
        name, f"host-{name}", HostReport("running", stall=stall, generation=generation)
    )


def test_hang_policy_waits_for_every_host() -> None:
    assert hang_of([], 1) is None
    assert hang_of([host("a", rank(0)), host("b")], 1) is None
    assert hang_of([host("a", rank(0)), HostFacts("b", "b", None)], 1) is None


def test_hang_policy_ignores_stalls_of_earlier_generation() -> None:
    before = [host("a", rank(0)), host("b", rank(1))]
    assert hang_of(before, 2) is None
    mixed = [host("a", rank(0), generation=2), host("b", rank(1))]
    assert hang_of(mixed, 2) is None


def test_hang_policy_names_lagging_rank_and_node() -> None:
    failure = hang_of([host("a", rank(0), rank(1)), host("b", rank(2, parts=1), rank(3))], 1)
    assert failure is not None
    assert (failure.rank, failure.node, failure.cause) == (2, "host-b", Cause.HANG)
    assert "rank 2 (node host-b) is behind, in the forward pass after step 10" in failure.message
    assert failure.step == 10


def test_hang_policy_names_a_stopped_process() -> None:
    failure = hang_of([host("a", rank(0, parts=1)), host("b", rank(1, state="stopped"))], 1)
    assert failure is not None
    assert failure.rank == 1
    assert "state T" in failure.message


def test_hang_policy_ignores_ranks_waiting_to_join() -> None:
    comes, meets = rank(0, step=0, parts=0, waits=True), rank(1, waits=True)
    assert hang_of([host("a", comes), host("b", meets)], 1) is None
    failure = hang_of([host("a", comes), host("b", meets, rank(2))], 1)
    assert failure is not None
    assert failure.rank == 2


def test_hang_policy_names_computing_rank_among_equals() -> None:
    failure = hang_of([host("a", rank(0)), host("b", rank(1, busy=True))], 1)
    assert failure is not None
    assert failure.rank == 1
    together = hang_of([host("a", rank(0)), host("b", rank(1))], 1)
    assert together is not None
    assert (together.rank, together.node) == (None, None)
    assert "network between them" in together.message
