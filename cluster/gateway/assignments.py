"""Desired state of a node: the assignments of the attempts that are placed on it."""

from dataclasses import asdict
from typing import Any

import structlog
from pydantic import ValidationError
from sqlalchemy import bindparam, exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.jobs import gradients, plans
from trainhall.cluster.lifecycle.generations import member_since, newest_broken_generation
from trainhall.cluster.lifecycle.states import ACTIVE_ATTEMPT_STATES
from trainhall.cluster.profiles import requests as profiles
from trainhall.cluster.wire.protocol import Assignment, first_problem
from trainhall.db.models import Attempt, Grant, Job, Node
from trainhall.training.fencing import FencingToken
from trainhall.training.spec import JobSpec, SpecError
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.strategies import with_parallelism

log = structlog.get_logger(__name__)

_PLACED = (
    select(Attempt, Job.spec, Node.address, Job.plan, Job.pauses_after)
    .join(Job, Job.id == Attempt.job_id)
    .join(Node, Node.id == bindparam("at_node"))
    .where(
        exists().where(
            Grant.node_id == bindparam("at_node"),
            Grant.job_id == Attempt.job_id,
            Grant.attempt == Attempt.number,
        ),
        Attempt.revoked.is_(False),
        Attempt.state.in_([state.value for state in ACTIVE_ATTEMPT_STATES]),
    )
    .order_by(Attempt.job_id)
)
"""The active attempts with devices on a node."""
_OF_WHAT_STOPS = validate_spec({"name": "unknown", "script": {"path": "/dev/null"}}).model_dump(
    mode="json"
)
"""In the place of a spec that is not understood: what is to stop needs none."""


async def assignments_for(
    session: AsyncSession, node_id: str, excluded: set[tuple[str, int]]
) -> tuple[list[Assignment], dict[FencingToken, str]]:
    """Return the active attempts with devices on this node; `excluded` ones are left out.

    An attempt that is over or revoked is not listed: the agent ends what is left of it.

    Returns:
        The assignments, and the problems of specs that this version does not understand, because
        another version stored them. Those attempts are to stop, and the node reports when they
        have; its other attempts must not suffer for it.
    """
    rows = await session.execute(_PLACED, {"at_node": node_id})
    placed = rows.all()
    requests = await gradients.pending(session, [attempt.job_id for attempt, *_ in placed])
    profiled = await profiles.pending(session, [attempt for attempt, *_ in placed])
    found: list[Assignment] = []
    not_understood: dict[FencingToken, str] = {}
    for attempt, its_spec, address, plan, pauses_after in placed:
        if (attempt.job_id, attempt.number) in excluded:
            continue
        spec = attempt.spec or its_spec
        try:
            wanted = assignment(attempt, spec, node_id, address, plan, pauses_after)
        except (ValueError, LookupError, TypeError) as error:
            why = _not_understood(spec, error)
            log.error("spec_not_understood", job=attempt.job_id, error=why)
            token = FencingToken(attempt.job_id, attempt.number, attempt.generation)
            not_understood[token] = why
            stops = _to_stop(attempt, node_id, address)
            found += [stops] if stops is not None else []
            continue
        if attempt.planning and wanted.launch.node_rank == 0:
            try:
                wanted.launch.planning = await plans.request(
                    session, attempt, own_strategy=not wanted.launch.spec.is_auto
                )
            except ValidationError as error:
                log.error("plan_not_understood", job=attempt.job_id, error=str(error))
                if wanted.goal == "run":
                    continue
        wanted.gradients = requests.get(attempt.job_id, 0)
        wanted.profile = profiled.get(attempt.job_id)
        found.append(wanted)
    return found, not_understood


def _to_stop(attempt: Attempt, node_id: str, address: str) -> Assignment | None:
    """Return an assignment that only stops; None if the spec is not the only problem."""
    try:
        stopping = assignment(attempt, _OF_WHAT_STOPS, node_id, address, None)
    except (ValueError, LookupError, TypeError):
        return None
    stopping.goal = "stop"
    return stopping


def _not_understood(spec: dict[str, Any], error: Exception) -> str:
    """Return the problem of a spec for which an assignment cannot be made.

    Raises:
        Exception: the error; it says nothing of the spec.
    """
    try:
        validate_spec(spec)
    except SpecError as refused:
        return str(refused)
    if isinstance(error, ValidationError):
        return first_problem(error)
    if isinstance(error, SpecError):
        return str(error)
    raise error


def assignment(
    attempt: Attempt,
    spec: dict[str, Any],
    node_id: str,
    address: str,
    planned: dict[str, Any] | None,
    pauses_after: int = 0,
) -> Assignment:
    """Build the assignment; `planned` is `Job.plan`, `pauses_after` the job's column."""
    host = attempt.allocation.host(node_id)
    # A host that a regrouping left out has no ranks: its own are to leave when the others regroup.
    node_rank = host.node_rank if host is not None else len(attempt.allocation)
    plan = attempt.checkpoint_plan
    chosen = None
    job = JobSpec.model_validate(spec)
    if planned is not None and not attempt.planning:
        # A named strategy runs without the prediction of another version, too.
        chosen = plans.parse_plan(planned) if job.is_auto else plans.known_plan(planned)
    if job.is_auto and chosen is not None:
        job = with_parallelism(job, attempt.world_size, chosen.parallelism)
    elif "max_workers" in spec["resources"]:
        job = job.at(attempt.world_size)
    return Assignment.model_validate(
        {
            "goal": attempt.goal,
            "joined": member_since(attempt, node_id),
            "launch": {
                "job_id": attempt.job_id,
                "attempt": attempt.number,
                "generation": attempt.generation,
                "spec": job,
                "world_size": attempt.world_size,
                "node_rank": node_rank,
                "num_nodes": len(attempt.allocation),
                "ranks": [asdict(rank) for rank in host.ranks] if host is not None else [],
                # The first host opens the store; the others wait for its address.
                "rendezvous": attempt.rendezvous if node_rank > 0 else None,
                "address": address,
                "pauses_after": pauses_after,
                "in_place": attempt.in_place,
                "broken": newest_broken_generation(attempt),
                "isolation_seconds": attempt.isolation_seconds,
                "prediction": chosen.prediction if chosen and chosen.predicts(attempt) else None,
                # Without a folder each host keeps its own, and uploads from it.
                "checkpoint": {**asdict(plan), "folder": plan.folder or ""},
            },
        }
    )
