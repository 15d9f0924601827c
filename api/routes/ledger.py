"""/ledger: device-hours, energy and money by job, user or project."""

from enum import StrEnum
from typing import Annotated

from fastapi import Query, Request, Response

from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import Operations
from trainhall.api.params import Cursor, Limit
from trainhall.api.problems import invalid
from trainhall.api.schemas.times import Time
from trainhall.cluster.ledger.service import LedgerQuery
from trainhall.cluster.ledger.views import Account, Ledger

router = Operations(prefix="/ledger", tags=["cluster"])

_CSV = "text/csv"
_EXAMPLE = """\
user,jobs,device_hours,gpu_hours,useful_hours,data_hours,redone_hours,idle_hours,\
not_measured_hours,energy_kwh,metered_hours
maria,3,42.5,42.5,36.1,1.2,2.9,2.3,0.0,24.8,42.1
"""


class LedgerFormat(StrEnum):
    JSON = "json"
    CSV = "csv"


@router.operation(
    "GET",
    "",
    invalid("since", "2026-11-27T00:00:00Z", "must not be after until"),
    summary="Read the ledger",
    also={
        200: {
            "description": "A page of the ledger, or all of it as CSV.",
            "content": {_CSV: {"schema": {"type": "string"}, "example": _EXAMPLE}},
        }
    },
    response_model=Ledger,
)
async def read_ledger(
    services: ServicesDep,
    request: Request,
    by: Annotated[Account, Query(description="A line for each job, user or project.")] = (
        Account.USER
    ),
    since: Annotated[Time | None, Query(description="Default: 30 days before `until`.")] = None,
    until: Annotated[Time | None, Query(description="Default: now, with what still runs.")] = None,
    job_id: Annotated[
        str | None, Query(pattern="^[0-9A-Za-z_-]{1,32}$", description="Only this job.")
    ] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
    form: Annotated[
        LedgerFormat | None,
        Query(alias="format", description="Default: `csv` for `Accept: text/csv`, else `json`."),
    ] = None,
) -> Ledger | Response:
    """Sums up the attempts that ended in that time; those that still run count as far as they are.
    Most device-hours first; lines of jobs that run may change places between two pages, and none is
    left out."""
    query = LedgerQuery(by=by, since=since, until=until, job_id=job_id)
    accepts_csv = request.headers.get("Accept", "").startswith(_CSV)
    if form is LedgerFormat.CSV or (form is None and accepts_csv):
        headers = {
            "Content-Disposition": f'attachment; filename="ledger-by-{by}.csv"',
            "Cache-Control": "no-store",
        }
        text = await services.ledger.csv(query)
        return Response(text, headers=headers, media_type=f"{_CSV}; charset=utf-8")
    return await services.ledger.read(query, limit, cursor)
