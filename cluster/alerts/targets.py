"""Targets of alerts: what each kind takes as its URL."""

import base64
import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from trainhall.cluster.alerts.addresses import is_public
from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.options import AlertOptions
from trainhall.cluster.ports import Ids

MAX_URL = 2048
GONE = 410
"""HTTP status of a target that wants no more messages."""
_SECRET_PREFIX = "whsec_"
_MAIL = re.compile(r"[^@\s<>()\[\],;:\"\\]{1,64}@[A-Za-z0-9.-]{1,190}", re.ASCII)
_FIELD = "target.url"


class TargetKind(StrEnum):
    WEBHOOK = "webhook"
    SLACK = "slack"
    MAIL = "mail"
    BROWSER = "browser"


@dataclass(frozen=True)
class Target:
    kind: TargetKind
    url: str | None = None
    """`http(s)://…` of a webhook or of Slack, `mailto:…`; None: of browsers."""


class SendError(Exception):
    """A target did not accept a message."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def check_target(target: Target, options: AlertOptions) -> None:
    """Check a target as far as that is possible without a connection.

    Raises:
        InvalidValueError: it cannot be used.
    """
    match target.kind:
        case TargetKind.BROWSER:
            if target.url is not None:
                raise _wrong(target.url, "must be left out: browsers are reached by the dashboard")
        case TargetKind.MAIL:
            _check_mail(target.url, options)
        case TargetKind.WEBHOOK | TargetKind.SLACK:
            _check_url(target.url, options)


def mail_address(url: str) -> str:
    return url.removeprefix("mailto:")


def shown_url(target: Target) -> str | None:
    """Return the URL for people. That of Slack is a secret: whoever knows it may post."""
    if target.kind is not TargetKind.SLACK or target.url is None:
        return target.url
    parts = urlsplit(target.url)
    return f"{parts.scheme}://{parts.netloc}/…"


def new_secret(ids: Ids) -> str:
    """Return a fresh key of signatures, as Standard Webhooks writes it."""
    return _SECRET_PREFIX + base64.b64encode(ids.secret().encode()[:32]).decode()


def secret_key(secret: str) -> bytes:
    return base64.b64decode(secret.removeprefix(_SECRET_PREFIX))


def _check_mail(url: str | None, options: AlertOptions) -> None:
    if url is None or not url.startswith("mailto:") or not _MAIL.fullmatch(mail_address(url)):
        raise _wrong(url, "must be mailto: and one address, such as mailto:maria@example.org")
    if options.smtp_url is None and not options.simulated:
        raise InvalidValueError(
            "target.kind", "mail", "this coordinator sends no mail: set smtp-url and mail-from in "
            "its trainhall.toml (docs/alerts.md), or use a webhook",
        )  # fmt: skip


def _check_url(url: str | None, options: AlertOptions) -> None:
    if url is None:
        raise _wrong(url, "is required: the URL that messages are sent to, by POST")
    if len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise _wrong(
            url[:100], f"must have at most {MAX_URL} printable ASCII characters, without spaces"
        )
    parts = _split(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _wrong(url, "must be an http or https URL, such as https://example.org/hook")
    if parts.username is not None or parts.password is not None:
        raise _wrong(
            f"{parts.scheme}://…@{parts.hostname}/",
            "must have no user or password: webhooks are signed (docs/alerts.md)",
        )
    if not options.private_targets and _is_private(parts.hostname):
        raise _wrong(
            url, "is not a public address; to send alerts into the own network, start the "
            "coordinator with TRAINHALL_ALERTS_PRIVATE_TARGETS=true",
        )  # fmt: skip


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise _wrong(url, f"is not a URL: {error}") from None
    return parts


def _is_private(host: str) -> bool:
    """Return whether a host is known to be private; of other names that shows on connection."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return not is_public(host)


def _wrong(url: str | None, message: str) -> InvalidValueError:
    return InvalidValueError(_FIELD, url, message)
