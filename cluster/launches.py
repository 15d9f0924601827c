"""What a node is told: the assignments of the attempts that are placed on it."""

from typing import Any

import structlog
from pydantic import ValidationError
from sqlalchemy import bindparam, exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import gradients, plans
from trainhall.cluster.lifecycle import ACTIVE_ATTEMPT_STATES
from trainhall.cluster.protocol import Assignment
from trainhall.cluster.regroup import broken, joined
from trainhall.cluster.untold import Token
from trainhall.db.models import Attempt, Grant, Job, Node
from trainhall.training.spec import JobSpec, SpecError
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.plan import ChosenPlan
from trainhall.training.spec.strategies import with_parallelism

log = structlog.get_logger(__name__)

_PLACED = (
    select(Attempt, Job.spec, Node.address, Job.plan)
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
    session: AsyncSession, node_id: str, withheld: set[tuple[str, int]]
) -> tuple[list[Assignment], dict[Token, str]]:
    """The active attempts with devices on this node; `withheld` ones are left out.

    An attempt that is over or revoked is not listed: the agent ends what is left of it.

    Returns:
        What the node is told, and what is not understood of the specs of some of these attempts:
        stored by another version. They are to stop, and the node says when they have; its other
        attempts must not suffer for it.
    """
    rows = await session.execute(_PLACED, {"at_node": node_id})
    placed = rows.all()
    requests = await gradients.pending(session, [attempt.job_id for attempt, *_ in placed])
    found: list[Assignment] = []
    not_understood: dict[Token, str] = {}
    for attempt, its_spec, address, plan in placed:
        if (attempt.job_id, attempt.number) in withheld:
            continue
        spec = attempt.spec or its_spec
        try:
            told = assignment(attempt, spec, node_id, address, plan)
        except (ValueError, LookupError, TypeError) as error:
            why = _not_understood(spec, error)
            log.error("a job's spec is not understood", job=attempt.job_id, error=why)
            not_understood[attempt.job_id, attempt.number, attempt.generation] = why
            stops = _to_stop(attempt, node_id, address)
            found += [stops] if stops is not None else []
            continue
        if attempt.planning and told.launch.node_rank == 0:
            try:
                told.launch.planning = await plans.request(session, attempt)
            except ValidationError as error:
                log.error("a plan is not understood", job=attempt.job_id, error=str(error))
                if told.goal == "run":
                    continue
        told.gradients = requests.get(attempt.job_id, 0)
        found.append(told)
    return found, not_understood


def _to_stop(attempt: Attempt, node_id: str, address: str) -> Assignment | None:
    """None: its spec is not all that is the matter. Its host ends what it does not hear of."""
    try:
        told = assignment(attempt, _OF_WHAT_STOPS, node_id, address, None)
    except (ValueError, LookupError, TypeError):
        return None
    told.goal = "stop"
    return told


def _not_understood(spec: dict[str, Any], error: Exception) -> str:
    """What is wrong with a spec for which an assignment cannot be made.

    Raises:
        Exception: the error; it says nothing of the spec.
    """
    try:
        validate_spec(spec)
    except SpecError as refused:
        return str(refused)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    if isinstance(error, SpecError):
        return str(error)
    raise error


def assignment(
    attempt: Attempt,
    spec: dict[str, Any],
    node_id: str,
    address: str,
    planned: dict[str, Any] | None,
) -> Assignment:
    """
    Args:
        planned: `Job.plan`.
    """
    host = next((host for host in attempt.allocation if host["node_id"] == node_id), None)
    if host is None:
        # A regrouping left it out: its ranks are to leave when the others regroup.
        host = {"node_rank": len(attempt.allocation), "ranks": []}
    plan = attempt.checkpoint_plan
    chosen = None
    if spec["parallelism"]["strategy"] == "auto" and planned is not None and not attempt.planning:
        chosen = ChosenPlan.model_validate(planned)
        job = JobSpec.model_validate(spec)
        spec = with_parallelism(job, attempt.world_size, chosen.parallelism).model_dump(mode="json")
    elif "max_workers" in spec["resources"]:
        spec = JobSpec.model_validate(spec).at(attempt.world_size).model_dump(mode="json")
    return Assignment.model_validate(
        {
            "goal": attempt.goal,
            "joined": joined(attempt, node_id),
            "launch": {
                "job_id": attempt.job_id,
                "attempt": attempt.number,
                "generation": attempt.generation,
                "spec": spec,
                "world_size": attempt.world_size,
                "node_rank": host["node_rank"],
                "num_nodes": len(attempt.allocation),
                "ranks": host["ranks"],
                # The first host opens the store; the others wait until they are told where it is.
                "rendezvous": attempt.rendezvous if host["node_rank"] > 0 else None,
                "address": address,
                "in_place": attempt.in_place,
                "broken": broken(attempt),
                "isolation_seconds": attempt.isolation_seconds,
                "prediction": chosen.prediction if chosen is not None else None,
                "checkpoint": {
                    # Empty: each host keeps its own folder and uploads from it.
                    "folder": plan.get("folder") or "",
                    "upload": plan["upload"],
                    "resume": plan["resume"],
                    "unrecorded": plan.get("unrecorded"),
                },
            },
        }
    )
