"""/training/jobs/{id}/profile: profile the next steps of a job's ranks."""

from fastapi import Request

from trainhall.api.bodies import read_json
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi import examples
from trainhall.api.openapi.describe import Operations, body, wrong_state
from trainhall.api.params import JobId
from trainhall.api.problems import invalid
from trainhall.api.schemas.jobs import NewProfile
from trainhall.cluster.profiles.views import Profile, Profiles

router = Operations(prefix="/training/jobs/{job_id}", tags=["jobs"])


@router.operation(
    "POST",
    "/profile",
    invalid("ranks", 8, "must be ranks of the job, from 0 to 3"),
    wrong_state(
        f"{examples.JOB} cannot be profiled: it is queued; only the steps of a running job can be "
        "profiled"
    ),
    summary="Profile the next steps of a job",
    answer="The ranks begin at one step, within about a second.",
    status=202,
    reads=body(
        NewProfile,
        {"20 steps of all ranks": {}, "of two ranks": {"steps": 5, "ranks": [0, 3]}},
        required=False,
    ),
)
async def profile_job(services: ServicesDep, job_id: JobId, request: Request) -> Profile:
    """All chosen ranks record the same steps, by torch.profiler.

    Each rank's trace becomes an output of the job, a Chrome trace compressed by gzip. A script is
    profiled if it calls `trainhall.should_stop()` after every step. One profile runs at a time.
    """
    wanted = await read_json(request, NewProfile)
    return await services.profiles.request(job_id, **wanted.model_dump())


@router.operation(
    "GET",
    "/profiles",
    summary="List a job's profiles",
    answer="At most the newest 100, the newest first.",
)
async def list_profiles(services: ServicesDep, job_id: JobId) -> Profiles:
    """Profiles of a job's steps: their state, and the traces of their ranks."""
    return await services.profiles.list(job_id)
