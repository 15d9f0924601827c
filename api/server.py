"""The process of a coordinator: a socket, the application, and an orderly end."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI
from pydantic import ValidationError

from trainhall.api.app import create_app
from trainhall.api.host.bounded_http import BoundedConfig
from trainhall.api.host.bounded_websocket import BoundedWebSocket
from trainhall.api.host.config_file import SettingsError
from trainhall.api.host.connection_table import ConnectionLimits, ConnectionTable
from trainhall.api.host.descriptors import raise_limit
from trainhall.api.host.garbage import collect_rarely
from trainhall.api.host.listening import ListenError, inherited, listen, url_of
from trainhall.api.host.private_files import keep_private
from trainhall.api.host.tls import CertificateError, ServedCertificate
from trainhall.api.host.tls_admission import TlsServer
from trainhall.api.login.first_admin import print_login_link
from trainhall.api.logs import configure_logging
from trainhall.api.settings import Settings
from trainhall.api.startup import StartupError
from trainhall.cluster.quotas import Quotas
from trainhall.cluster.tls import PIN
from trainhall.training.spec.keys import unknown_key
from trainhall.training.spec.problems import UNKNOWN_KEY, error_message

log = structlog.get_logger(__name__)

WRONG_INPUT = 2
"""The exit code where a setting is wrong."""
GRACE_SECONDS = 3
"""Time for requests and websockets in progress to end."""
KEEP_ALIVE_SECONDS = 75
PING_SECONDS = 20.0
MAX_MESSAGE_BYTES = 10 * 1024 * 1024
SWITCH_SECONDS = 0.0005
"""Time that a computing thread, as those that store and pack metrics, may keep the interpreter
from the loop that serves everybody. The loop asks for it again after each statement: with
Python's own 5 ms, tenths of a second add up."""


def serve(
    *,
    host: str,
    port: int,
    data_dir: Path,
    database_url: str | None = None,
    insecure: bool = False,
    mock: bool = False,
    fd: int | None = None,
    on_listening: Callable[[str], None] | None = None,
    prints_link: bool = True,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    tls_self_signed: bool = False,
    forward_domain: str | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM; the exit code.

    Args:
        port: 0 takes a free one.
        fd: a socket that listens already, instead of `host` and `port`.
        on_listening: is handed the URL once requests are served; without it the URL is printed.
        prints_link: print a link that logs a browser in, where one is needed.
        tls_cert, tls_key, tls_self_signed, forward_domain: as in the settings.
    """
    given: dict[str, Any] = {"host": host, "port": port, "data_dir": data_dir, "insecure": insecure}
    if mock:
        given["mock"] = True
    if tls_self_signed:
        given["tls_self_signed"] = True
    options = {
        "database_url": database_url, "tls_cert": tls_cert, "tls_key": tls_key,
        "forward_domain": forward_domain,
    }  # fmt: skip
    given |= {name: value for name, value in options.items() if value is not None}
    try:
        settings = Settings(**given)
        listener = inherited(fd) if fd is not None else listen(host, port)
    except SettingsError as error:
        return _report_failure(str(error), WRONG_INPUT)
    except ListenError as error:
        return _report_failure(str(error))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        message = error_message(first)
        if message == UNKNOWN_KEY:
            message = unknown_key(str(first["loc"][-1]), [each.name for each in fields(Quotas)])
        where = ".".join(map(str, first["loc"]))
        value = f" (given: {first['input']})" if isinstance(first["input"], str | float) else ""
        return _report_failure(f"{where}: {message}{value}" if where else message, WRONG_INPUT)
    configure_logging(settings.logged_level)
    keep_private(settings.data_dir)
    sys.setswitchinterval(SWITCH_SECONDS)
    raise_limit()
    with listener:
        try:
            return _run(settings, listener, on_listening or _print_url, prints_link)
        except CertificateError as error:
            return _report_failure(str(error), WRONG_INPUT)


def _run(
    settings: Settings,
    listener: socket.socket,
    on_listening: Callable[[str], None],
    prints_link: bool,
) -> int:
    certificate = ServedCertificate(settings.tls) if settings.tls.is_on else None
    _log_anchor(settings)
    url = url_of(listener, settings.host, tls=certificate is not None)
    links: list[str] = []
    app = create_app(settings, url=url, on_login_link=links.append if prints_link else None)

    def started() -> None:
        on_listening(url)
        for link in links:
            print_login_link(link)

    server = Server(server_config(app), started, certificate)
    app.state.is_over = lambda: server.should_exit
    # A failure at the start is reported below, once and as text.
    uvicorn_log = logging.getLogger("uvicorn.error")
    uvicorn_log.setLevel(logging.CRITICAL)
    try:
        server.run(sockets=[listener])
    except SystemExit:
        error = app.state.startup_error
        if not isinstance(error, StartupError):
            traceback.print_exception(error)
        return _report_failure(f"the coordinator could not start: {error}")
    return 1 if app.state.failed else 0


def _log_anchor(settings: Settings) -> None:
    anchor = settings.tls.anchor()
    if anchor is not None:
        log.info("tls_pinned", fingerprint=f"{PIN}{anchor.fingerprint}")


def server_config(app: FastAPI) -> BoundedConfig:
    """Return the server configuration of the application."""
    settings: Settings = app.state.settings
    limits = ConnectionLimits(
        head_seconds=settings.head_seconds,
        body_seconds=settings.body_seconds,
        per_address=settings.connections_per_address,
    )
    table = ConnectionTable(limits)
    proxies = sorted(settings.trusted_proxies)
    return BoundedConfig(
        app,
        table=table,
        log_config=None,
        access_log=False,
        lifespan="on",
        ws=BoundedWebSocket,
        ws_per_message_deflate=False,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies,
        server_header=False,
        backlog=table.backlog,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


class Server(uvicorn.Server):
    """Reports when it listens, and ends with an exit code instead of the signal that ended it."""

    def __init__(
        self,
        config: BoundedConfig,
        on_started: Callable[[], None],
        certificate: ServedCertificate | None = None,
    ) -> None:
        super().__init__(config)
        self._table = config.table
        self._on_started = on_started
        self._certificate = certificate
        self._renewal: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._certificate is not None:
            self.config.ssl = self._certificate.context
        with _limited_handshakes(self._table):
            await super().startup(sockets)
        if self.started:
            if self._certificate is not None:
                self._renewal = asyncio.create_task(self._certificate.keep_current())
            collect_rarely()
            logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
            self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self.force_exit:
            # The loop's end cancels the application: no error, since a second signal asked for it.
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


@contextlib.contextmanager
def _limited_handshakes(table: ConnectionTable) -> Iterator[None]:
    """Let servers count a TLS connection before its handshake: uvicorn has no option for it, and
    the event loop would wait for any number, for a minute each."""
    loop: Any = asyncio.get_running_loop()

    async def create_server(serve: Any, *, sock: Any, ssl: Any = None, **options: Any) -> Any:
        if ssl is None:
            return await create(serve, sock=sock, **options)
        sock.listen(table.backlog)
        return TlsServer(serve, sock, ssl, table)

    create, loop.create_server = loop.create_server, create_server
    try:
        yield
    finally:
        del loop.create_server


def _print_url(url: str) -> None:
    sys.stdout.write(f"Trainhall is at {url}\n")
    sys.stdout.flush()


def _report_failure(message: str, code: int = 1) -> int:
    sys.stderr.write(f"trainhall: {message}\n")
    return code
