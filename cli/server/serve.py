"""`trainhall server` and `trainhall agent`: the two programs of a cluster."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainhall.api.host.config_file import user_data_dir
from trainhall.api.host.garbage import collect_rarely
from trainhall.api.host.lean_imports import import_structlog
from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.base.options import (
    DatabaseUrl,
    DataDir,
    ForwardDomain,
    Host,
    Insecure,
    JobMemory,
    Mock,
    PassEnv,
    Port,
    RunAs,
    Slots,
    Supervised,
    TlsCert,
    TlsKey,
    TlsSelfSigned,
)


def server(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
    insecure: Insecure = False,
    mock: Mock = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_self_signed: TlsSelfSigned = False,
    forward_domain: ForwardDomain = None,
    fd: Annotated[int | None, typer.Option("--fd", hidden=True)] = None,
    supervised: Supervised = False,
) -> None:
    """Start the coordinator: REST API, live stream, dashboard.

    \b
    Examples:
      trainhall server
      trainhall server --data-dir /srv/trainhall --port 0
      trainhall server --host 0.0.0.0 --tls-self-signed
      trainhall server --mock
      DATABASE_URL=postgresql://trainhall@db/trainhall trainhall server
    """
    _watch_parent(supervised)
    if mock:
        print("Starting a simulated cluster …", file=sys.stderr, flush=True)
    collect_rarely()
    import_structlog()
    from trainhall.api.server import serve

    raise typer.Exit(
        serve(
            host=host,
            port=port,
            fd=fd,
            data_dir=(data_dir or user_data_dir()).absolute(),
            database_url=database_url,
            insecure=insecure,
            mock=mock,
            # `up` makes a link of its own; this one would stay in a log file.
            prints_link=not supervised,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_self_signed=tls_self_signed,
            forward_domain=forward_domain,
        )
    )


def agent(
    coordinator: Annotated[
        str,
        typer.Option(
            "--coordinator",
            envvar="TRAINHALL_COORDINATOR",
            metavar="URL",
            help="URL of the coordinator.",
        ),
    ],
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            envvar="TRAINHALL_JOIN_TOKEN",
            help="Join token that `trainhall nodes add` prints; needed once. Other users of this "
            "host see options: set the variable instead.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            envvar="TRAINHALL_ADDRESS",
            help="Address at which other hosts reach this one.",
            show_default="detected",
        ),
    ] = None,
    data_dir: DataDir = None,
    slots: Slots = None,
    pass_env: PassEnv = None,
    run_as: RunAs = None,
    job_memory: JobMemory = None,
    tls_ca: Annotated[
        str | None,
        typer.Option(
            "--tls-ca",
            envvar="TRAINHALL_TLS_CA",
            metavar="FILE",
            help="Verify the coordinator with this authority, in PEM, or with `sha256:` and the "
            "fingerprint that it logs.",
            show_default="what the join token names, else public authorities",
        ),
    ] = None,
    allow_exec: Annotated[
        bool,
        typer.Option(
            "--exec/--no-exec",
            envvar="TRAINHALL_AGENT_EXEC",
            help="Let users run commands, and reach ports, beside their jobs on this host.",
        ),
    ] = True,
    allow_file_repositories: Annotated[
        bool,
        typer.Option(
            "--allow-file-repositories",
            envvar="TRAINHALL_ALLOW_FILE_REPOSITORIES",
            help="Let jobs clone code from git repositories in folders of this host (file:///…).",
        ),
    ] = False,
    tls_own: Annotated[Path | None, typer.Option("--tls-own", hidden=True)] = None,
    supervised: Supervised = False,
) -> None:
    """Start the agent that runs ranks on this host. Ranks survive its restart.

    \b
    Examples:
      TRAINHALL_JOIN_TOKEN=TOKEN trainhall agent --coordinator http://lab:8000
      trainhall agent --coordinator http://lab:8000 --slots 4 --address 10.0.0.7
    """
    _watch_parent(supervised)
    check_slots(slots)
    from trainhall.cluster.agent.daemon import run_agent
    from trainhall.cluster.agent.options import AgentError, AgentOptions, OptionError

    try:
        options = AgentOptions(
            coordinator=coordinator,
            data_dir=(data_dir or user_data_dir() / "agent").absolute(),
            token=token,
            address=address,
            slots=slots,
            pass_env=tuple(pass_env or ()),
            run_as=run_as,
            job_memory=int(job_memory * 2**30) if job_memory is not None else None,
            tls_ca=tls_ca,
            tls_own=tls_own,
            allows_exec=allow_exec,
            allows_file_repositories=allow_file_repositories,
            stop_ranks_on_exit=supervised,
        )
        run_agent(options)
    except OptionError as error:
        raise UsageError(str(error)) from None
    except AgentError as error:
        raise CliError(str(error)) from None


def check_slots(slots: int | None) -> None:
    """Raise UsageError if nothing could ever be placed on this host."""
    if slots != 0:
        return
    from trainhall.cluster.agent.devices import visible_gpus

    if not visible_gpus():
        raise UsageError(
            "--slots 0 leaves this host without a device: the NVIDIA driver finds no GPU; "
            "use at least 1"
        )


def _watch_parent(supervised: bool) -> None:
    if supervised:
        from trainhall.cli.server.supervise import end_with_parent

        end_with_parent()
