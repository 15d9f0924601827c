"""/alerts: create, read, change, delete and test alerts, and read the log of their deliveries."""

from fastapi import Request, Response

from trainhall.api.bodies import read_json
from trainhall.api.login.services import ServicesDep
from trainhall.api.openapi.describe import Operations, body
from trainhall.api.params import AlertId, Cursor, Limit
from trainhall.api.problems import invalid
from trainhall.api.schemas.alerts import AlertChange, NewAlert
from trainhall.cluster.alerts.views import (
    Alert,
    AlertPage,
    AlertWithSecret,
    Delivery,
    DeliveryPage,
)

router = Operations(prefix="/alerts", tags=["alerts"])

_WEBHOOK = {
    "name": "failed jobs of vision",
    "on": ["job.failed", "job.stuck"],
    "scope": {"kind": "project", "value": "vision"},
    "target": {"kind": "webhook", "url": "https://example.org/hook"},
}
_BROWSER = {"name": "nodes", "on": ["node.down"], "target": {"kind": "browser"}}
_PRIVATE = invalid(
    "target.url",
    "http://10.0.0.7/hook",
    "is not a public address; to send alerts into the own network, start the coordinator with "
    "TRAINHALL_ALERTS_PRIVATE_TARGETS=true",
)


@router.operation("GET", "", summary="List alerts", answer="A page of alerts.")
async def list_alerts(services: ServicesDep, limit: Limit = 50, cursor: Cursor = None) -> AlertPage:
    """The oldest first."""
    return await services.alerts.list(limit=limit, cursor=cursor)


@router.operation(
    "POST",
    "",
    _PRIVATE,
    summary="Create an alert",
    answer="The alert, with the key of a webhook's signatures, which is shown only once.",
    status=201,
    reads=body(NewAlert, {"webhook": _WEBHOOK, "browser": _BROWSER}, required=True),
)
async def create_alert(
    services: ServicesDep, request: Request, response: Response
) -> AlertWithSecret:
    """Reports what happens from now on. Of a waiting job, a full disk or a reached quota it reports
    what holds already, too."""
    wanted = await read_json(request, NewAlert)
    alert = await services.alerts.create(wanted.definition())
    response.headers["Location"] = f"{request.url.path}/{alert.id}"
    response.headers["Cache-Control"] = "no-store"
    return alert


@router.operation("GET", "/{alert_id}", summary="Read an alert", answer="The alert.")
async def get_alert(services: ServicesDep, alert_id: AlertId) -> Alert:
    """The key of its signatures is not shown again."""
    return await services.alerts.get(alert_id)


@router.operation(
    "PATCH",
    "/{alert_id}",
    _PRIVATE,
    summary="Change an alert",
    answer="The alert, with the key of its signatures if there was none before.",
    reads=body(
        AlertChange, {"off": {"enabled": False}, "conditions": {"on": ["job.failed"]}},
        required=True,
    ),
)  # fmt: skip
async def change_alert(
    services: ServicesDep, alert_id: AlertId, request: Request, response: Response
) -> AlertWithSecret:
    """Fields that are left out stay. To enable an alert that was disabled because its target
    failed, set `enabled` to true."""
    wanted = await read_json(request, AlertChange)
    response.headers["Cache-Control"] = "no-store"
    return await services.alerts.change(alert_id, wanted.changes())


@router.operation("DELETE", "/{alert_id}", summary="Delete an alert", status=204)
async def delete_alert(services: ServicesDep, alert_id: AlertId) -> None:
    """Deletes its deliveries, too: messages that were not delivered are not sent any more."""
    await services.alerts.delete(alert_id)


@router.operation(
    "POST",
    "/{alert_id}/test",
    summary="Test an alert",
    answer="The message; read the alert's deliveries to see what became of it.",
    status=202,
)
async def test_alert(services: ServicesDep, alert_id: AlertId) -> Delivery:
    """Sends a message of the type `alert.test` to the alert's target, even if it is disabled."""
    return await services.alerts.test(alert_id)


@router.operation(
    "GET",
    "/{alert_id}/deliveries",
    summary="List an alert's deliveries",
    answer="A page of messages.",
)
async def list_deliveries(
    services: ServicesDep, alert_id: AlertId, limit: Limit = 50, cursor: Cursor = None
) -> DeliveryPage:
    """The newest first. A message is tried for three days; finished ones are kept for 30 days."""
    return await services.alerts.deliveries(alert_id, limit=limit, cursor=cursor)
