"""/training/jobs/{id}/ports: ports of jobs in the browser."""

from typing import Annotated

from fastapi import Path, Request, Response

from trainhall.api.forward.accesses import LINK_SECONDS
from trainhall.api.forward.origins import MAX_PORT, JobPort
from trainhall.api.forward.pages import Forwarding
from trainhall.api.forward.port_tunnel import RANK
from trainhall.api.login.authentication import PrincipalDep
from trainhall.api.login.cookies import own_base
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi import examples
from trainhall.api.openapi.describe import Operations, wrong_state
from trainhall.api.params import JobId
from trainhall.api.problems import RefusalError, invalid
from trainhall.db.views import View

router = Operations(prefix="/training/jobs/{job_id}/ports", tags=["jobs"])

_NO_DOMAIN = RefusalError(
    409,
    "conflict",
    "ports of jobs are no pages here, since the coordinator has no domain for them: start it with "
    "--forward-domain, or use `trainhall forward JOB PORT`",
)


class PortLink(View):
    """Link that opens a port of a job in a browser."""

    url: str
    """Counts once."""
    expires_in: int
    """Seconds until it ends."""


@router.operation(
    "POST",
    "/{port}/link",
    invalid("port", 0, f"must be an integer from 1 to {MAX_PORT}"),
    _NO_DOMAIN,
    wrong_state(f"no session can begin beside {examples.JOB}: it is queued, and has no processes"),
    summary="Make a link to a port of a job",
    answer="The link.",
    status=201,
)
async def create_port_link(
    services: ServicesDep,
    principal: PrincipalDep,
    request: Request,
    response: Response,
    job_id: JobId,
    port: Annotated[
        int,
        Path(
            ge=1, le=MAX_PORT, description="TCP port of 127.0.0.1 beside rank 0.", examples=[8888]
        ),
    ],
) -> PortLink:
    """Opens what a program beside a running job serves by HTTP, such as Jupyter or TensorBoard, in
    one browser and on an origin of its own, for 12 hours or as long as the user may."""
    beside = await services.tunnels.beside_rank(job_id, RANK)
    forwarding: Forwarding | None = request.app.state.forwarding
    if forwarding is None:
        raise _NO_DOMAIN
    await services.tunnels.record_link(beside, RANK, port)
    response.headers["Cache-Control"] = "no-store"
    url = forwarding.link(request, principal, JobPort(beside.job.id, port), own_base(request))
    return PortLink(url=url, expires_in=int(LINK_SECONDS))
