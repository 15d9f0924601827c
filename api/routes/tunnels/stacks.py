"""/training/jobs/{id}/stacks: what every rank does at this moment."""

from typing import Annotated

from fastapi import Query

from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi import examples
from trainhall.api.openapi.describe import Operations, wrong_state
from trainhall.api.params import JobId
from trainhall.api.problems import invalid
from trainhall.cluster.tunnels.service import Stacks

router = Operations(prefix="/training/jobs/{job_id}/stacks", tags=["jobs"])

MAX_RANKS = 1024


@router.operation(
    "POST",
    "",
    invalid("rank", 8, "must be a rank of the job, from 0 to 3"),
    wrong_state(f"no session can begin beside {examples.JOB}: it is queued, and has no processes"),
    summary="Collect the stacks of a job's ranks",
    answer="The stacks of all threads, rank by rank.",
)
async def take_stacks(
    services: ServicesDep,
    job_id: JobId,
    rank: Annotated[
        list[Annotated[int, Query(ge=0, lt=2**31)]] | None,
        Query(max_length=MAX_RANKS, description="Ranks, repeated for each; none: all."),
    ] = None,
) -> Stacks:
    """The Python stacks of all threads of a running job's ranks; the ranks continue.

    With `py-spy` on the host, of every process. Without it, of tasks and of scripts that use the
    SDK.
    """
    return await services.tunnels.stacks(job_id, rank)
