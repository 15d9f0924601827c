"""What may be the target of an alert."""

import pytest

from trainhall.cluster.alerts.targets import Target, TargetKind, check_target, shown_url
from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.options import AlertOptions

OPTIONS = AlertOptions(smtp_url="smtp://mail")


@pytest.mark.parametrize(
    ("kind", "url"),
    [
        ("webhook", "https://example.org/hook?x=1"),
        ("webhook", "http://8.8.8.8:9000"),
        ("slack", "https://hooks.slack.com/services/T0/B0/secret"),
        ("mail", "mailto:maria.k+x@example.org"),
        ("browser", None),
    ],
)
def test_targets_that_can_be_used(kind: str, url: str | None) -> None:
    check_target(Target(TargetKind(kind), url), OPTIONS)


@pytest.mark.parametrize(
    ("kind", "url", "message"),
    [
        ("webhook", None, "is required"),
        ("webhook", "ftp://example.org", "http or https URL"),
        ("webhook", "https://", "http or https URL"),
        ("webhook", "https://example.org:99999", "is not a URL"),
        ("webhook", "https://[::1", "is not a URL"),
        ("webhook", "https://user:word@example.org", "no user or password"),
        ("webhook", "https://example.org/a b", "printable ASCII"),
        ("webhook", "https://example.org/" + "a" * 2048, "2048"),
        ("webhook", "http://localhost:9000", "not a public address"),
        ("webhook", "http://127.0.0.1", "not a public address"),
        ("slack", "http://[::1]/x", "TRAINHALL_ALERTS_PRIVATE_TARGETS"),
        ("mail", "maria@example.org", "mailto:maria@example.org"),
        ("mail", "mailto:maria@example.org\nBcc: x@y", "one address"),
        ("mail", "mailto:a@b,c@d", "one address"),
        ("browser", "https://example.org", "must be left out"),
    ],
)
def test_wrong_targets_name_the_field(kind: str, url: str | None, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message) as caught:
        check_target(Target(TargetKind(kind), url), OPTIONS)
    assert caught.value.field == "target.url"


def test_private_targets_are_an_option() -> None:
    target = Target(TargetKind.WEBHOOK, "http://127.0.0.1:9000")
    check_target(target, AlertOptions(private_targets=True))


def test_mail_needs_a_mail_server() -> None:
    target = Target(TargetKind.MAIL, "mailto:maria@example.org")
    with pytest.raises(InvalidValueError, match="smtp-url"):
        check_target(target, AlertOptions())
    check_target(target, AlertOptions(simulated=True))


def test_secret_path_of_slack_is_not_shown() -> None:
    target = Target(TargetKind.SLACK, "https://hooks.slack.com/services/T0/B0/secret")
    assert shown_url(target) == "https://hooks.slack.com/…"
