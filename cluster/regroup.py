"""Applying a regrouping: an attempt goes on under its next generation, in one transaction."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import CursorResult, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.decide_attempt import ranks_on
from trainhall.cluster.decisions import Regroup
from trainhall.cluster.lifecycle import AttemptState, JobState, lock_job
from trainhall.cluster.node_lifecycle import hold_ready
from trainhall.cluster.resume import to_start_from
from trainhall.cluster.scheduling.placement import allocation_of
from trainhall.cluster.told import read_told
from trainhall.db.events import record_event
from trainhall.db.models import Attempt, Grant, Job
from trainhall.training.checkpoint.names import parse_name
from trainhall.training.spec import SpecError
from trainhall.training.spec.parse import validate_spec

KEPT_GENERATIONS = 50
"""Of an attempt, for people; the first and the newest."""


class NotRegrouped(Exception):
    """The state is no longer what the decision was made from."""


def regroups_in_place(spec: dict[str, Any]) -> bool:
    """`Attempt.in_place` of a job's stored spec."""
    try:
        return validate_spec(spec).regroups_in_place
    except SpecError:
        return False  # stored by another version; what it is told will say so


def generation(
    number: int,
    now: datetime,
    reason: str,
    allocation: list[dict[str, object]],
    failure: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """One entry of `Attempt.generations`."""
    return {
        "generation": number,
        "time": now.isoformat(),
        "reason": reason,
        "world_size": len(_places(allocation)),
        "allocation": allocation,
        "failure": failure,
    }


def joined(attempt: Attempt, node_id: str) -> int:
    """The generation from which on a host has been part of the attempt without a break; of one that
    a regrouping left out, of its last stay."""
    first = attempt.generation
    present = False
    for entry in reversed(attempt.generations):
        if any(host["node_id"] == node_id for host in entry["allocation"]):
            first, present = entry["generation"], True
        elif present:
            break
    return first


def broken(attempt: Attempt) -> int:
    """The newest generation of the attempt that has lost a rank; 0: none has."""
    lost = [entry["generation"] for entry in attempt.generations if entry["failure"] is not None]
    return max(lost, default=1) - 1


def holds(allocation: list[Any], node_id: str, device_indices: Iterable[int]) -> bool:
    """Whether an allocation has one of these devices."""
    wanted = {(node_id, index) for index in device_indices}
    return not wanted.isdisjoint(_places(allocation))


async def regroup(
    session: AsyncSession, decision: Regroup, now: datetime, resume_candidates: int
) -> tuple[Attempt, set[str]]:
    """The attempt under its next generation, and the hosts of the one before.

    Should those that have the state fall before the others get it, all begin at the newest
    checkpoint, of this attempt too.

    Devices that it gives up stay granted until their hosts tell that nothing runs there.

    Raises:
        NotRegrouped: the token is not the attempt's any more, it does not run, ranks have fallen
            since so that nobody who stays would have the state, or a host of the new allocation may
            get no work.
        IntegrityError: a device was taken meanwhile.
    """
    job_id, number, token = decision.token
    await lock_job(session, job_id)
    attempt = await session.get(Attempt, (job_id, number), with_for_update=True)
    job = await session.get(Job, job_id)
    if (
        attempt is None
        or job is None
        or (attempt.generation, job.attempt) != (token, number)
        or attempt.revoked
        or attempt.goal != "run"
        or attempt.state != AttemptState.RUNNING.value
        or job.state != JobState.RUNNING.value
    ):
        raise NotRegrouped
    before = {host["node_id"] for host in attempt.allocation}
    allocation = allocation_of(decision.placed, decision.device)
    size = sum(len(node.device_indices) for node in decision.placed)
    if size != attempt.world_size and size not in (job.sizes or []):
        raise NotRegrouped
    if not _keeps_state(attempt, allocation):
        raise NotRegrouped
    await _grant(session, attempt, decision, before)
    failure = decision.failure.model_dump(mode="json") if decision.failure else None
    entry = generation(token + 1, now, decision.reason, allocation, failure)
    was = attempt.world_size
    joining = {node.node_id for node in decision.placed} - before
    attempt.generation = token + 1
    attempt.allocation = allocation
    attempt.world_size = entry["world_size"]
    if size in (job.sizes or []):
        attempt.spec = None
    attempt.rendezvous = None
    names, _ = await to_start_from(session, job)
    plan = {**attempt.checkpoint_plan, "resume": names[:resume_candidates]}
    if any((found := parse_name(each)) and found.attempt == number for each in names):
        plan["unrecorded"] = None  # what it was to look for first is older
    attempt.checkpoint_plan = plan
    attempt.reason = decision.reason
    attempt.generations = _kept([*attempt.generations, entry])
    # What a host told of an earlier stay is no word on the one that begins.
    attempt.node_outcomes = {n: t for n, t in attempt.node_outcomes.items() if n not in joining}
    moved = await session.execute(
        update(Job)
        .where(Job.id == job_id, Job.attempt == number, Job.generation == token)
        .values(
            generation=token + 1,
            world_size=entry["world_size"],
            reason=decision.reason,
            **({} if decision.restarts is None else {"restarts": decision.restarts}),
            **({} if decision.restarts_step is None else {"restarts_step": decision.restarts_step}),
        )
    )
    assert isinstance(moved, CursorResult)
    if moved.rowcount != 1:
        raise NotRegrouped
    await session.flush()
    await record_event(
        session,
        job_id,
        time=now,
        kind="regrouped",
        reason=f"generation {token + 1}: {decision.reason}",
        attempt=number,
        data={**entry, "before": was},
    )
    return attempt, before


def tell_whole(job: Job, attempt: Attempt) -> str | None:
    """The present generation has taken a step: what it was regrouped for is past, and stays told in
    its history. One that has fewer workers than before is not whole, and goes on saying why.

    Returns:
        The attempt's new reason; None: it keeps the one that it has.
    """
    if len(attempt.generations) < 2 or not (
        job.attempt == attempt.number
        and job.state == JobState.RUNNING.value
        and attempt.state == AttemptState.RUNNING.value
    ):
        return None
    before, entry = attempt.generations[-2:]
    if entry["world_size"] < before["world_size"]:
        return None
    told = ranks_on(entry["world_size"], [host["node_name"] for host in entry["allocation"]])
    if job.reason == entry["reason"]:  # else a user has asked for something since
        job.reason = told
    attempt.reason = told
    return told


async def _grant(
    session: AsyncSession, attempt: Attempt, decision: Regroup, before: set[str]
) -> None:
    """Grant what the attempt does not hold yet. What it is still leaving it may have back, on a
    host that it has not left."""
    rows = await session.execute(
        select(Grant.node_id, Grant.device_index).where(
            Grant.job_id == attempt.job_id, Grant.attempt == attempt.number
        )
    )
    held = {(node_id, index) for node_id, index in rows}
    joining = [node.node_id for node in decision.placed if node.node_id not in before]
    if any(node_id in joining for node_id, _ in held):
        raise NotRegrouped  # its processes of an earlier stay have not ended there
    wanted = [(node.node_id, i) for node in decision.placed for i in node.device_indices]
    new = [place for place in wanted if place not in held]
    if not await hold_ready(session, {node_id for node_id, _ in new}):
        raise NotRegrouped
    for node_id, index in new:
        session.add(
            Grant(
                node_id=node_id,
                device_index=index,
                job_id=attempt.job_id,
                attempt=attempt.number,
            )
        )
    await session.flush()


def _keeps_state(attempt: Attempt, allocation: list[Any]) -> bool:
    """Of the ranks that live, as far as their hosts have told, one stays."""
    living = _places(attempt.allocation)
    for node_id, stored in attempt.node_outcomes.items():
        told = read_told(stored)
        if told is not None and told.outcome is not None:
            living = {(node, index) for node, index in living if node != node_id}
        elif told is not None and told.generation == attempt.generation:
            living -= {(node_id, fallen.device_index) for fallen in told.fallen}
    return not living or not living.isdisjoint(_places(allocation))


def _places(allocation: list[Any]) -> set[tuple[str, int]]:
    return {
        (host["node_id"], rank["device_index"]) for host in allocation for rank in host["ranks"]
    }


def _kept(generations: list[Any]) -> list[Any]:
    if len(generations) <= KEPT_GENERATIONS:
        return generations
    return [generations[0], *generations[-(KEPT_GENERATIONS - 1) :]]
