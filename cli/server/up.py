"""`trainhall up`: a whole Trainhall on this host, which ends when the command ends.

The coordinator listens on a socket that this process opened and keeps: a taken port is reported
at once, and while a dead coordinator is restarted, requests wait instead of failing."""

import contextlib
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhall.api.host.config_file import user_data_dir
from trainhall.api.host.credentials import admin_token
from trainhall.api.host.listening import ListenError, listen, url_of
from trainhall.cli.accounts.browser import can_open, open_link
from trainhall.cli.base import config
from trainhall.cli.base.errors import FINAL, CliError, UsageError
from trainhall.cli.base.options import (
    DatabaseUrl,
    DataDir,
    ForwardDomain,
    Host,
    Insecure,
    Mock,
    PassEnv,
    Port,
    RunAs,
    Slots,
    TlsCert,
    TlsKey,
    TlsSelfSigned,
)
from trainhall.cli.base.output import label, notice
from trainhall.cli.server.serve import check_slots, server
from trainhall.cli.spec import specs
from trainhall.cluster.lifecycle.states import JobState

if TYPE_CHECKING:
    from trainhall.api.host.tls import Tls
    from trainhall.cli.base.client import Client
    from trainhall.cluster.tls import Anchor
    from trainhall.training.spec import JobSpec

READY_SECONDS = 60.0
AGENT_STOP_SECONDS = 120.0
"""Long, for the grace of scripts; a second Ctrl-C cuts it short."""
COORDINATOR_STOP_SECONDS = 10.0
WATCH_SECONDS = 0.1
LINK_SECONDS = 600
UNFINISHED_STATES = [state for state in JobState if state not in (*FINAL, JobState.PAUSED)]
SHOWN_JOBS = 5


def up(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    insecure: Insecure = False,
    slots: Slots = None,
    pass_env: PassEnv = None,
    run_as: RunAs = None,
    mock: Mock = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_self_signed: TlsSelfSigned = False,
    forward_domain: ForwardDomain = None,
    demo: Annotated[
        str | None,
        typer.Option("--demo", metavar="FILE", help="Submit this job and show its progress."),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="With --demo: exit when the job has ended, with 0 if it completed."
        ),
    ] = False,
    no_browser: Annotated[
        bool,
        typer.Option(
            "--no-browser",
            envvar="TRAINHALL_NO_BROWSER",
            help="Only print the login link, as over SSH, under CI, with --once, and without a "
            "display.",
        ),
    ] = False,
) -> None:
    """Start a coordinator and an agent on this host, and open the dashboard in a browser.

    Ctrl-C stops them and all they run.

    \b
    Examples:
      trainhall up
      trainhall up --port 0 --slots 4
      trainhall up --demo examples/digits.yaml --once
      trainhall up --mock
    """
    if once and demo is None:
        raise UsageError("--once needs --demo FILE")
    if mock:
        if demo is not None:
            raise UsageError("--demo runs a job and --mock cannot run any; give one of them")
        server(
            host, port, data_dir, database_url, insecure, mock, tls_cert, tls_key, tls_self_signed,
            forward_domain,
        )  # fmt: skip
    check_slots(slots)
    # A wrong spec is reported before anything is started.
    spec = specs.load(demo, None) if demo is not None else None
    folder = (data_dir or user_data_dir()).absolute()
    with _only_one(folder), _listening(host, port) as listener:
        tls = _tls(folder, host, tls_cert, tls_key, tls_self_signed)
        if run_as is not None:
            _check_run_as(run_as, folder / "agent")
        cluster = LocalCluster(
            folder, host, listener, database_url, insecure, slots, pass_env or [], run_as, tls,
            forward_domain,
        )  # fmt: skip
        cluster.opens_browser = not (no_browser or once) and can_open()
        raise typer.Exit(cluster.run(spec, once))


class LocalCluster:
    """The coordinator and the agent as child processes, watched until one asks to end."""

    def __init__(
        self,
        folder: Path,
        host: str,
        listener: socket.socket,
        database_url: str | None,
        insecure: bool,
        slots: int | None,
        pass_env: list[str],
        run_as: str | None,
        tls: "Tls | None",
        forward_domain: str | None = None,
    ) -> None:
        from trainhall.cli.server.supervise import MARK, Child

        self._folder = folder
        self._host = host
        self._insecure = insecure
        self._run_as = run_as
        self.opens_browser = False
        port = listener.getsockname()[1]
        self.url = url_of(listener, host, tls=tls is not None)
        self._tls = tls
        self._mark = secrets.token_hex(8)
        self._stop = threading.Event()
        self._force = threading.Event()
        self._token = ""
        """The first admin's API token; empty where none is needed."""
        env = {MARK: self._mark}
        server = ["server", "--fd", str(listener.fileno()), "--host", host, "--port", str(port),
                  "--data-dir", str(folder)]  # fmt: skip
        if insecure:
            server.append("--insecure")
        if tls is not None and tls.is_self_signed:
            server.append("--tls-self-signed")
        elif tls is not None:
            server += ["--tls-cert", str(tls.cert), "--tls-key", str(tls.key)]
        if forward_domain is not None:
            server += ["--forward-domain", forward_domain]
        # A database URL may hold a password, which others could read among the arguments.
        secret = {"DATABASE_URL": database_url} if database_url else {}
        self.coordinator = Child(
            "coordinator", server, folder / "logs" / "coordinator.log",
            env=env | secret, inherit=[listener.fileno()],
        )  # fmt: skip
        agent = ["agent", "--coordinator", self.url, "--data-dir", str(folder / "agent")]
        if slots is not None:
            agent += ["--slots", str(slots)]
        for name in pass_env:
            agent += ["--pass-env", name]
        if run_as is not None:
            agent += ["--run-as", run_as]
        if tls is not None:
            # Its names need not be those of loopback: it is known by its file.
            agent += ["--tls-own", str(tls.file)]
        self._agent_arguments = agent
        self._agent_env = env
        self.agent: Child | None = None

    def run(self, demo: "JobSpec | None", once: bool) -> int:
        """Run until a signal, or the demo's end with `once`; the exit code."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        try:
            if not self._start():
                return 1 if once else 0
            return self._watch(demo, once)
        finally:
            self._end()

    def _on_signal(self, _number: int, _frame: Any) -> None:
        if self._stop.is_set():
            self._force.set()
        self._stop.set()

    def _start(self) -> bool:
        """Start both programs; False when asked to end meanwhile."""
        from trainhall.cli.server.supervise import Child

        notice("Starting the coordinator …")
        self.coordinator.start()
        if not self._until(self._is_ready, self.coordinator):
            return False
        self._token = admin_token(self._folder) or ""
        notice(f"Trainhall is at {self.url}  (data in {self._folder}; Ctrl-C stops it)")
        self._log_in()
        if config.coordinator_url().rstrip("/") != self.url:
            notice(f"To use it from other commands: `export TRAINHALL_URL={self.url}`")
        if self._tls is not None and (anchor := self._tls.anchor()):
            notice(f"Its TLS certificate: `export TRAINHALL_TLS_CA=sha256:{anchor.fingerprint}`")
        is_open = self._insecure or (self._tls is not None and bool(self._token))
        if text := _who_is_refused(self._host, insecure=is_open):
            notice(text)
        token = self._prepare_agent()
        env = self._agent_env | ({"TRAINHALL_JOIN_TOKEN": token} if token else {})
        self.agent = Child(
            "agent", self._agent_arguments, self._folder / "logs" / "agent.log", env=env
        )
        self.agent.start()
        return True

    def _log_in(self) -> None:
        """Open a browser, which is logged in, or print the link that does so, if one is needed."""
        from trainhall.cli.base.client import Client

        with Client(self.url, token=self._token, anchor=self._anchor()) as client:
            if client.get("/auth/me")["how"] == "none":
                if self.opens_browser:
                    self._open(self.url)
                return
            made = client.request("POST", "/auth/codes", json={"seconds": LINK_SECONDS})
        link = f"{self.url}/login#code={made['code']}"
        if self.opens_browser:
            self._open(link)
        else:
            _print_link(link)
        if self._run_as is None:
            notice(
                "Jobs run as your own user and can read your credentials (docs/security.md); as "
                "root, --run-as gives them another."
            )

    def _open(self, link: str) -> None:
        """Open a browser, and print the link if that fails. It may take seconds: nothing waits."""

        def work() -> None:
            if not open_link(link):
                _print_link(link)

        notice("Opening the dashboard in a browser; `trainhall open` opens it again.")
        threading.Thread(target=work, name="browser", daemon=True).start()

    def _prepare_agent(self) -> str | None:
        """Return the token that this host's agent needs; print which jobs it will resume."""
        from trainhall.cli.base.client import Client

        with Client(self.url, token=self._token, anchor=self._anchor()) as client:
            if message := describe_unfinished(client):
                notice(message)
            return join_token(client, self.url, self._folder / "agent")

    def _anchor(self) -> "Anchor | None":
        """Return what the coordinator is verified with: its very certificate."""
        from trainhall.cluster.tls import own_anchor

        return own_anchor(self._tls.file) if self._tls is not None else None

    def _until(self, check: Callable[[], bool], child: Any) -> bool:
        deadline = time.monotonic() + READY_SECONDS
        while not check():
            if self._stop.is_set():
                return False
            if not child.is_running:
                raise child.failure(child.exit_text())
            if time.monotonic() > deadline:
                raise child.failure(f"the {child.name} is not ready after {READY_SECONDS:g} s")
            self._stop.wait(0.03)
        return True

    def _is_ready(self) -> bool:
        import httpx

        from trainhall.cluster.tls import tls_context

        context = tls_context(self.url, self._anchor())
        with contextlib.suppress(httpx.TransportError):
            reply = httpx.get(self.url + "/readyz", timeout=1, trust_env=False, verify=context)
            return reply.status_code == 200
        return False

    def _watch(self, demo: "JobSpec | None", once: bool) -> int:
        from trainhall.cli.server.demo import Demo

        show = Demo(self.url, self._token, demo, self._stop, self._anchor()) if demo else None
        if show is not None:
            show.start()
        children = [self.coordinator, self.agent]
        while not self._stop.wait(WATCH_SECONDS):
            for child in children:
                assert child is not None
                exit_text = "" if child.is_running else child.exit_text()
                if child.restart_if_ended():
                    notice(f"{exit_text}; restarted it")
            if show is not None and show.is_done:
                if once:
                    return show.exit_code
                notice(f"Trainhall is still at {self.url}; Ctrl-C stops it.")
                show = None
        if show is not None:
            show.join()
            if once:
                return show.exit_code
        # To end when asked to is what it is for, by whichever signal.
        return 0

    def _end(self) -> None:
        from trainhall.cli.server.supervise import sweep

        graceful = True
        if self.agent is not None:
            notice("Stopping the agent and the coordinator; Ctrl-C again kills them.")
            graceful = self.agent.stop(AGENT_STOP_SECONDS, self._force)
        graceful &= self.coordinator.stop(COORDINATOR_STOP_SECONDS, self._force)
        killed = sweep(self._mark)
        if killed or not graceful:
            notice("Some processes did not stop in time and were killed.")


def _tls(
    folder: Path, host: str, cert: Path | None, key: Path | None, is_self_signed: bool
) -> "Tls | None":
    """Return the certificate to serve with, once it is known to be of use; None: without TLS.

    Raises:
        UsageError: it is of none.
    """
    options = {"tls_cert": cert, "tls_key": key, "tls_self_signed": is_self_signed or None}
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if not given and not config.server_has_tls():
        return None
    from pydantic import ValidationError

    from trainhall.api.host.tls import CertificateError, ServedCertificate
    from trainhall.api.settings import Settings

    try:
        tls = Settings(host=host, data_dir=folder, **given).tls
        if not tls.is_on:
            return None
        ServedCertificate(tls)
    except ValidationError as error:
        raise UsageError(error.errors()[0]["msg"].removeprefix("Value error, ")) from None
    except CertificateError as error:
        raise UsageError(str(error)) from None
    return tls


def _print_link(link: str) -> None:
    notice(f"Log in at {link}")
    notice("  (works once, for 10 minutes; `trainhall open` makes another)")


def _check_run_as(run_as: str, folder: Path) -> None:
    """Check what the agent would refuse: it would be restarted again and again.

    Raises:
        UsageError: there is no such user.
        CliError: jobs cannot run as it.
    """
    from trainhall.cluster.agent.data_dir import DataDir
    from trainhall.cluster.agent.options import AgentError, OptionError
    from trainhall.cluster.agent.run_as import parse_run_as

    try:
        users = parse_run_as(run_as)
        data_dir = DataDir(folder, is_shared=True)
        data_dir.make()  # their users have to get into it
        users.check(data_dir.attempts)
    except OptionError as error:
        raise UsageError(str(error)) from None
    except AgentError as error:
        raise CliError(str(error)) from None


def _listening(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except ListenError as error:
        raise CliError(str(error)) from None


def _who_is_refused(host: str, insecure: bool) -> str | None:
    """Return a warning for users who listen on more than loopback."""
    from trainhall.api.guard import is_loopback

    if insecure or is_loopback(host):
        return None
    return (
        "Browsers and commands on other hosts are refused (agents are not). Forward a port "
        "with `ssh -L`, or add --insecure if everyone who reaches this address may run code."
    )


def describe_unfinished(client: "Client") -> str | None:
    """Name the unfinished jobs that resume on their own, in a line; None without any.

    Paused jobs wait for a user to resume them.
    """
    jobs = list(client.items("/training/jobs", state=UNFINISHED_STATES))
    if not jobs:
        return None
    jobs.reverse()
    names = ", ".join(map(label, jobs[:SHOWN_JOBS]))
    more = f" and {len(jobs) - SHOWN_JOBS} more" if len(jobs) > SHOWN_JOBS else ""
    count = f"{len(jobs)} unfinished jobs" if len(jobs) > 1 else "1 unfinished job"
    return f"Resuming {count}: {names}{more}"


def join_token(client: "Client", url: str, folder: Path) -> str | None:
    """Return the token that the agent in `folder` needs to join this host's coordinator.

    None: it has joined. A credential is kept beside the URL for which it was given. Here the URL
    may change with every start (`--port 0`), and the coordinator is the same as long as it knows
    the node.
    """
    from trainhall.cluster.agent.data_dir import DataDir
    from trainhall.cluster.wire.protocol import JoinReply

    data_dir = DataDir(folder)
    try:
        known = JoinReply.model_validate_json((folder / "agent.json").read_bytes())
    except (FileNotFoundError, ValueError):
        known = None
    if known is not None and known.node_id in {n["id"] for n in client.items("/cluster/nodes")}:
        data_dir.write_credential(url, known)
        return None
    data_dir.forget_credential()
    return str(client.request("POST", "/cluster/nodes", json={})["join_token"])


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Hold the data folder: two coordinators on one would fight.

    Raises:
        UsageError: the folder can't be used, or another `up` uses it.
    """
    from trainhall.cluster.file_lock import FileLock

    try:
        lock = FileLock(folder / "up.lock")
    except OSError as error:
        raise UsageError(f"cannot keep data in {folder}: {error.strerror}") from None
    with lock:
        if not lock.taken():
            raise UsageError(
                f"another `trainhall up` uses {folder}; give this one its own --data-dir"
            )
        yield
