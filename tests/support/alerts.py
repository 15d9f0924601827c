"""Alerts of a simulated cluster, and the signature that a receiver computes."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

from support.cluster.simulated import SimulatedCluster

from trainhall.cluster.alerts import views
from trainhall.cluster.alerts.service import Definition
from trainhall.cluster.alerts.targets import Target, TargetKind
from trainhall.cluster.lifecycle.alerts import Condition


async def add_alert(
    cluster: SimulatedCluster, url: str | None, *on: Condition, kind: str = "webhook", **more: Any
) -> views.AlertWithSecret:
    target = Target(TargetKind(kind), url)
    wanted = Definition(name="a", on=on or (Condition.JOB_FAILED,), target=target, **more)
    return await cluster.coordinator.alerts.create(wanted)


async def deliveries(cluster: SimulatedCluster, alert_id: str) -> Sequence[views.Delivery]:
    return (await cluster.coordinator.alerts.deliveries(alert_id)).items


async def deliver(cluster: SimulatedCluster, seconds: float = 0.0) -> None:
    cluster.clock.advance(seconds)
    await cluster.coordinator.alert_dispatcher.deliver_due()


def signature_of(secret: str, headers: dict[str, str], body: bytes) -> str:
    """What a receiver computes."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
