"""/reports: create, read, change and delete the reports that users write."""

from fastapi import Request, Response

from trainhall.api.bodies import read_json
from trainhall.api.login.filters import OwnerFilterDep
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import REPORT_CHANGED, REPORT_TOO_LARGE, Operations, body
from trainhall.api.params import Cursor, Limit, ReportId
from trainhall.api.schemas.reports import NewReport, ReportChange
from trainhall.cluster.reports.views import Report, ReportPage

router = Operations(prefix="/reports", tags=["reports"])

MAX_REPORT_BYTES = 1024 * 1024
"""Limit of a body whose text has every character escaped."""

_EXAMPLE = {
    "title": "Learning rates for digits",
    "text": "0.01 is best:\n\n```chart\nexperiment: 7c0d93be12f4\nmetric: eval_loss\n```\n",
}


@router.operation("GET", "", summary="List reports", answer="A page of reports.")
async def list_reports(
    services: ServicesDep, of: OwnerFilterDep, limit: Limit = 50, cursor: Cursor = None
) -> ReportPage:
    """Lists those of your projects, the newest first, without their texts."""
    return await services.reports.list(limit=limit, cursor=cursor, of=of)


@router.operation(
    "POST",
    "",
    REPORT_TOO_LARGE,
    summary="Create a report",
    answer="The report.",
    status=201,
    reads=body(NewReport, {"report": _EXAMPLE}, required=True),
)
async def create_report(services: ServicesDep, request: Request, response: Response) -> Report:
    """Its page on the dashboard is `/reports/{id}`."""
    wanted = await read_json(request, NewReport, MAX_REPORT_BYTES)
    report = await services.reports.create(wanted.title, wanted.text, wanted.project)
    response.headers["Location"] = f"{request.url.path}/{report.id}"
    return report


@router.operation("GET", "/{report_id}", summary="Read a report", answer="The report.")
async def get_report(services: ServicesDep, report_id: ReportId) -> Report:
    """As it was written: the dashboard draws its charts."""
    return await services.reports.get(report_id)


@router.operation(
    "PATCH",
    "/{report_id}",
    REPORT_CHANGED,
    REPORT_TOO_LARGE,
    summary="Change a report",
    answer="The report, with its new version.",
    reads=body(ReportChange, {"text": {"version": 1, "text": "Nothing yet."}}, required=True),
)
async def change_report(services: ServicesDep, report_id: ReportId, request: Request) -> Report:
    """Fields that are left out stay. A report that was changed since the given version is not."""
    wanted = await read_json(request, ReportChange, MAX_REPORT_BYTES)
    return await services.reports.change(
        report_id, wanted.version, wanted.title, wanted.text, wanted.project
    )


@router.operation("DELETE", "/{report_id}", summary="Delete a report", status=204)
async def delete_report(services: ServicesDep, report_id: ReportId) -> None:
    """Deletes it for all members of its project."""
    await services.reports.delete(report_id)
