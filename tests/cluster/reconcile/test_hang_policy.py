"""Hangs over several hosts."""

from trainhall.cluster.reconcile.hang_policy import hang_of
from trainhall.cluster.snapshot.model import HostFacts, HostReport
from trainhall.training.link.failure_cause import Cause
from trainhall.training.link.stall import RankStall, Stall


def rank(number: int, step: int = 10, parts: int = 3, **more: object) -> RankStall:
    doing = "in the forward pass"
    fields = {"rank": number, "step": step, "parts": parts, "doing": doing, "idle": 31.0, **more}
    return RankStall.model_validate(fields)


def host(name: str, *ranks: RankStall, generation: int = 1) -> HostFacts:
    stall = Stall(limit=30, behind=None, ranks=list(ranks)) if ranks else None
    return HostFacts(
        name, f"host-{name}", HostReport("running", stall=stall, generation=generation)
    )


def test_nothing_is_decided_before_every_host_says_so() -> None:
    assert hang_of([], 1) is None
    assert hang_of([host("a", rank(0)), host("b")], 1) is None
    assert hang_of([host("a", rank(0)), HostFacts("b", "b", None)], 1) is None


def test_ranks_that_waited_for_a_lost_host_are_no_hang_of_the_generation_without_it() -> None:
    before = [host("a", rank(0)), host("b", rank(1))]
    assert hang_of(before, 2) is None
    mixed = [host("a", rank(0), generation=2), host("b", rank(1))]
    assert hang_of(mixed, 2) is None


def test_the_rank_that_is_behind_all_others_is_named_with_its_node() -> None:
    failure = hang_of([host("a", rank(0), rank(1)), host("b", rank(2, parts=1), rank(3))], 1)
    assert failure is not None
    assert (failure.rank, failure.node, failure.cause) == (2, "host-b", Cause.HANG)
    assert "rank 2 (node host-b) is behind, in the forward pass after step 10" in failure.message
    assert failure.step == 10


def test_a_stopped_process_is_behind_wherever_it_is() -> None:
    failure = hang_of([host("a", rank(0, parts=1)), host("b", rank(1, state="stopped"))], 1)
    assert failure is not None
    assert failure.rank == 1
    assert "state T" in failure.message


def test_ranks_that_wait_for_others_to_come_are_no_hang_and_never_behind() -> None:
    comes, meets = rank(0, step=0, parts=0, waits=True), rank(1, waits=True)
    assert hang_of([host("a", comes), host("b", meets)], 1) is None
    failure = hang_of([host("a", comes), host("b", meets, rank(2))], 1)
    assert failure is not None
    assert failure.rank == 2


def test_of_equals_the_one_that_computes_is_behind_else_none_is() -> None:
    failure = hang_of([host("a", rank(0)), host("b", rank(1, busy=True))], 1)
    assert failure is not None
    assert failure.rank == 1
    together = hang_of([host("a", rank(0)), host("b", rank(1))], 1)
    assert together is not None
    assert (together.rank, together.node) == (None, None)
    assert "network between them" in together.message
