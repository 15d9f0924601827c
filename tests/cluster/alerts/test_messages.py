"""Messages of alerts as their receivers read them."""

from datetime import UTC, datetime

import orjson

from trainhall.cluster.alerts.messages import (
    mail_of,
    message_id,
    page_of,
    slack_body,
    webhook_body,
    webhook_headers,
)
from trainhall.cluster.lifecycle.alerts import Condition, Subject, new_delivery
from trainhall.db.alerts import Alert, AlertDelivery

NOW = datetime(2026, 1, 1, 9, 30, tzinfo=UTC)
ALERT = Alert(id="a1", name="nightly\nruns")


def delivery(*subjects: Subject, text: str = "“digits” (3f2a) failed: <oom>") -> AlertDelivery:
    made = new_delivery("a1", Condition.JOB_FAILED, text, subjects, NOW)
    made.id = 7
    return made


JOB = Subject("job", "3f2a", "digits")


def test_webhook_signature_equals_standard_example() -> None:
    """The example that the libraries of Standard Webhooks are tested with."""
    headers = webhook_headers(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        b'{"test": 2432232314}',
        datetime.fromtimestamp(1614265330, UTC),
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_webhook_body_names_subjects_and_page() -> None:
    body = orjson.loads(webhook_body(ALERT, delivery(JOB), "http://hall:8000/"))
    assert (body["type"], body["timestamp"]) == ("job.failed", "2026-01-01T09:30:00.000000Z")
    assert body["data"] == {
        "alert": {"id": "a1", "name": "nightly\nruns"},
        "text": "“digits” (3f2a) failed: <oom>",
        "subjects": [{"kind": "job", "id": "3f2a", "name": "digits"}],
        "subject_count": 1,
        "url": "http://hall:8000/jobs/3f2a",
    }
    assert orjson.loads(webhook_body(ALERT, delivery(JOB), None))["data"]["url"] is None


def test_slack_message_escapes_what_slack_would_read() -> None:
    text = orjson.loads(slack_body(ALERT, delivery(JOB), "http://hall"))["text"]
    assert "failed: &lt;oom&gt;" in text
    assert text.endswith("<http://hall/jobs/3f2a>")


def test_mail_has_one_line_subject_and_message_id() -> None:
    mail = mail_of(ALERT, delivery(JOB), sender="hall@lab", to="maria@lab", dashboard_url=None)
    assert mail["Subject"] == "Job failed: nightly runs"
    assert mail["Message-ID"] == "<msg_a1_7@trainhall>"
    assert "failed: <oom>" in mail.get_content()


def test_message_of_many_subjects_names_the_first() -> None:
    many = delivery(*[Subject("job", str(n), "x") for n in range(30)])
    assert (len(many.subjects), many.subject_count) == (20, 30)
    assert page_of(many) == "/queue"
    assert page_of(delivery(Subject("node", "n", "gpu"))) == "/nodes"
    assert page_of(delivery()) == "/alerts"


def test_message_id_is_that_of_the_delivery() -> None:
    assert message_id(delivery()) == "msg_a1_7"
