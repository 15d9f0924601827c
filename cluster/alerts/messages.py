"""Messages as the targets read them."""

import base64
import hashlib
import hmac
from datetime import datetime
from email.message import EmailMessage
from typing import Any

import orjson

from trainhall.cluster.alerts.targets import secret_key
from trainhall.cluster.lifecycle.alerts import DISABLED, TEST, Condition
from trainhall.db.alerts import Alert, AlertDelivery
from trainhall.db.views import rfc3339

TITLES: dict[str, str] = {
    Condition.JOB_COMPLETED: "Job completed",
    Condition.JOB_FAILED: "Job failed",
    Condition.JOB_STUCK: "Job stuck",
    Condition.JOB_WAITING: "Job waiting too long",
    Condition.LOSS_NOT_FINITE: "Loss not finite",
    Condition.LOSS_SPIKE: "Loss spike",
    Condition.NODE_DOWN: "Node down",
    Condition.DISK_FILLING: "Disk filling up",
    Condition.QUOTA_REACHED: "Quota reached",
    TEST: "Test alert",
    DISABLED: "Alert disabled",
}


def message_id(delivery: AlertDelivery) -> str:
    """Return the id of a message: the same in each try, so that a receiver can drop repetitions."""
    return f"msg_{delivery.alert_id}_{delivery.id}"


def page_of(delivery: AlertDelivery) -> str:
    """Return the dashboard's page of what a message is about."""
    if not delivery.subjects:
        return "/alerts"
    first = delivery.subjects[0]
    if first["kind"] == "job" and delivery.subject_count == 1:
        return f"/jobs/{first['id']}"
    return "/nodes" if first["kind"] in ("node", "coordinator") else "/queue"


def webhook_body(alert: Alert, delivery: AlertDelivery, dashboard_url: str | None) -> bytes:
    """Return the body that is signed; the same in each try."""
    body: dict[str, Any] = {
        "type": delivery.condition,
        "timestamp": rfc3339(delivery.created_at),
        "data": {
            "alert": {"id": alert.id, "name": alert.name},
            "text": delivery.text,
            "subjects": delivery.subjects,
            "subject_count": delivery.subject_count,
            "url": _link(delivery, dashboard_url),
        },
    }
    return orjson.dumps(body)


def webhook_headers(secret: str, identity: str, body: bytes, now: datetime) -> dict[str, str]:
    """Return the headers of Standard Webhooks: id, time of this try, and signature."""
    timestamp = str(int(now.timestamp()))
    signed = b".".join((identity.encode(), timestamp.encode(), body))
    digest = hmac.new(secret_key(secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": identity,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def slack_body(alert: Alert, delivery: AlertDelivery, dashboard_url: str | None) -> bytes:
    """Return the body of an incoming webhook of Slack; Mattermost and others take the same."""
    lines = [
        f"*{_slack_text(TITLES[delivery.condition])}*",
        _slack_text(delivery.text),
        f"_{_slack_text(alert.name)}_",
    ]
    if link := _link(delivery, dashboard_url):
        lines.append(f"<{link}>")
    return orjson.dumps({"text": "\n".join(lines)})


def mail_of(
    alert: Alert, delivery: AlertDelivery, *, sender: str, to: str, dashboard_url: str | None
) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"] = sender, to
    mail["Subject"] = _one_line(f"{TITLES[delivery.condition]}: {alert.name}")
    mail["Date"] = delivery.created_at
    mail["Message-ID"] = f"<{message_id(delivery)}@trainhall>"
    link = _link(delivery, dashboard_url)
    mail.set_content("\n\n".join([delivery.text, *([link] if link else [])]) + "\n")
    return mail


def _link(delivery: AlertDelivery, dashboard_url: str | None) -> str | None:
    return None if dashboard_url is None else dashboard_url.rstrip("/") + page_of(delivery)


def _slack_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _one_line(text: str) -> str:
    return " ".join(text.split())
