"""Sending one message to its target."""

import asyncio
import smtplib
import ssl
from datetime import datetime
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

import httpcore

from trainhall import __version__
from trainhall.cluster.alerts.messages import (
    mail_of,
    message_id,
    slack_body,
    webhook_body,
    webhook_headers,
)
from trainhall.cluster.alerts.public_network import PublicNetwork
from trainhall.cluster.alerts.targets import SendError, TargetKind, mail_address
from trainhall.cluster.options import AlertOptions
from trainhall.cluster.tls import tls_context
from trainhall.db.alerts import Alert, AlertDelivery

SECONDS = 10.0
"""Time for a target to accept a message."""
_ANSWER_BYTES = 300
_SMTP_PORT, _SMTPS_PORT = 587, 465


class Sender:
    """Sends messages to webhooks, Slack and mail addresses."""

    def __init__(self, options: AlertOptions) -> None:
        self._options = options
        self._network = PublicNetwork(private_too=options.private_targets)

    async def send(self, alert: Alert, delivery: AlertDelivery, now: datetime) -> int | None:
        """Send a message, and return the HTTP status, if there is one.

        Raises:
            SendError: it was not accepted.
        """
        link = self._options.dashboard_url
        url = alert.target_url or ""
        try:
            async with asyncio.timeout(SECONDS):
                if alert.target_kind == TargetKind.MAIL:
                    await self._mail(alert, delivery, mail_address(url))
                    return None
                if alert.target_kind == TargetKind.SLACK:
                    return await self._post(url, slack_body(alert, delivery, link), {})
                body = webhook_body(alert, delivery, link)
                headers = webhook_headers(alert.secret or "", message_id(delivery), body, now)
                return await self._post(url, body, headers)
        except TimeoutError:
            raise SendError(f"no answer within {SECONDS:g} s") from None

    async def _post(self, url: str, body: bytes, headers: dict[str, str]) -> int:
        """Send a request. Neither proxies nor redirects are followed."""
        async with httpcore.AsyncConnectionPool(
            ssl_context=tls_context(url), network_backend=self._network
        ) as pool:
            try:
                return await _post(pool, url, body, headers)
            except (
                httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError,
                ValueError,  # a name that no DNS has, such as one with an empty label
            ) as error:  # fmt: skip
                raise SendError(str(error) or type(error).__name__) from error

    async def _mail(self, alert: Alert, delivery: AlertDelivery, to: str) -> None:
        smtp, sender = self._options.smtp_url, self._options.mail_from
        if smtp is None or sender is None:
            raise SendError("this coordinator sends no mail: smtp-url and mail-from are not set")
        link = self._options.dashboard_url
        try:
            mail = mail_of(alert, delivery, sender=sender, to=to, dashboard_url=link)
            await asyncio.to_thread(send_mail, smtp, mail)
        except (OSError, ValueError, smtplib.SMTPException) as error:
            raise SendError(_smtp_text(error)) from error


async def _post(
    pool: httpcore.AsyncConnectionPool, url: str, body: bytes, headers: dict[str, str]
) -> int:
    fixed = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "user-agent": f"trainhall/{__version__}",
    }
    host = urlsplit(url).netloc
    sent = [(k.encode(), v.encode()) for k, v in {"host": host, **fixed, **headers}.items()]
    async with pool.stream("POST", url, headers=sent, content=body) as response:
        if 200 <= response.status < 300:
            return response.status
        answer = b""
        # No more of it: whoever answers without an end does not fill the memory.
        async for part in response.aiter_stream():
            answer += part[:_ANSWER_BYTES]
            if len(answer) >= _ANSWER_BYTES:
                break
    if 300 <= response.status < 400:
        raise SendError(f"HTTP {response.status}: redirects are not followed", response.status)
    text = " ".join(answer[:_ANSWER_BYTES].decode(errors="replace").split())
    raise SendError(f"HTTP {response.status}" + (f": {text}" if text else ""), response.status)


def _smtp_text(error: Exception) -> str:
    """Return the server's own words, if it is they that refuse."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, answer = next(iter(error.recipients.values()))
        return f"{code} {answer.decode(errors='replace')}"
    if isinstance(error, smtplib.SMTPResponseException) and isinstance(error.smtp_error, bytes):
        return f"{error.smtp_code} {error.smtp_error.decode(errors='replace')}"
    return str(error) or type(error).__name__


def send_mail(smtp_url: str, mail: EmailMessage) -> None:
    """Hand a mail to the mail server. A password is sent encrypted or not at all.

    Raises:
        OSError, smtplib.SMTPException: it was not accepted.
    """
    parts = urlsplit(smtp_url)
    host, context = parts.hostname or "", ssl.create_default_context()
    implicit_tls = parts.scheme == "smtps"
    port = parts.port or (_SMTPS_PORT if implicit_tls else _SMTP_PORT)
    server = (
        smtplib.SMTP_SSL(host, port, timeout=SECONDS, context=context)
        if implicit_tls
        else smtplib.SMTP(host, port, timeout=SECONDS)
    )
    with server:
        server.ehlo_or_helo_if_needed()
        if not implicit_tls and (parts.username or server.has_extn("starttls")):
            server.starttls(context=context)
        if parts.username:
            server.login(unquote(parts.username), unquote(parts.password or ""))
        server.send_message(mail)
