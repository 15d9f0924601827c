"""Views of alerts and their deliveries, as the REST API returns them."""

from typing import Literal

from trainhall.cluster.alerts.messages import message_id
from trainhall.cluster.alerts.targets import Target as CheckedTarget
from trainhall.cluster.alerts.targets import TargetKind, shown_url
from trainhall.cluster.lifecycle.alerts import Condition
from trainhall.db import alerts as tables
from trainhall.db.views import Page, Time, View

ScopeKind = Literal["cluster", "job", "project", "user"]
DeliveryState = Literal["pending", "delivered", "failed", "simulated"]


class AlertScope(View):
    """Jobs that an alert is about."""

    kind: ScopeKind
    value: str | None
    """Id of the job, or name of the project or the user; null for the whole cluster."""


class AlertTarget(View):
    """Receiver of an alert's messages."""

    kind: TargetKind
    url: str | None
    """URL of the receiver; of Slack only its host, null for browsers."""


class Alert(View):
    """Alert: conditions to report, their scope, and the target of the messages."""

    id: str
    user: str | None
    """Owner; null of alerts from before there were users, which admins see."""
    name: str
    on: list[Condition]
    scope: AlertScope
    waiting_seconds: float
    """`job.waiting` is reported of jobs that wait longer."""
    disk_percent: float
    """`disk.filling` is reported of disks that are fuller."""
    target: AlertTarget
    enabled: bool
    reason: str
    """Reason why it is disabled; empty while it is enabled."""
    failing_since: Time | None
    """When its target began to fail; null if the last message was delivered."""
    created_at: Time


class AlertWithSecret(Alert):
    """Alert, with the key of its signatures if that is new."""

    secret: str | None
    """Key of a webhook's signatures, shown only once; null if there is no new one."""


class Subject(View):
    """Job, node or quota that a message is about."""

    kind: str
    """`job`, `node`, `coordinator`, `project` or `user`."""
    id: str
    name: str


class Delivery(View):
    """Message of an alert, and what became of it."""

    id: str
    """Id of the message, which a webhook gets as `webhook-id`."""
    condition: str
    """A condition of the alert, `alert.test` or `alert.disabled`."""
    text: str
    subjects: list[Subject]
    """The first 20 of those that it is about."""
    subject_count: int
    state: DeliveryState
    """`simulated`: mock mode sends nothing."""
    tries: int
    status: int | None
    """HTTP status of the last answer."""
    error: str | None
    """Why the last try failed; null if none did."""
    created_at: Time
    next_try_at: Time | None
    """Null if it is not tried again."""
    finished_at: Time | None


class Notification(View):
    """Message to browsers."""

    sequence: int
    """Position in the stream."""
    alert_id: str
    alert_name: str
    condition: str
    title: str
    text: str
    path: str
    """Page of the dashboard to open."""
    time: Time


AlertPage = Page[Alert]
DeliveryPage = Page[Delivery]


def alert_view(alert: tables.Alert) -> Alert:
    return Alert.of(alert, **_parts(alert))


def alert_with_secret(alert: tables.Alert, secret: str | None) -> AlertWithSecret:
    return AlertWithSecret.of(alert, secret=secret, **_parts(alert))


def delivery_view(delivery: tables.AlertDelivery) -> Delivery:
    return Delivery.of(delivery, id=message_id(delivery))


def _parts(alert: tables.Alert) -> dict[str, View]:
    kind = TargetKind(alert.target_kind)
    return {
        "scope": AlertScope.model_validate({"kind": alert.scope_kind, "value": alert.scope_value}),
        "target": AlertTarget(kind=kind, url=shown_url(CheckedTarget(kind, alert.target_url))),
    }
