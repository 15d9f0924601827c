"""Options and arguments that several commands share."""

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from trainhall.cli.base import complete, config
from trainhall.cli.base.quantities import duration

DEFAULT_URL = config.DEFAULT_URL
MAX_SLOTS = 4096
"""As an agent takes them (`cluster.agent.options`), which is not imported for it."""


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class ReportFormat(StrEnum):
    """Formats of what has no ids."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def id_argument(
    what: str,
    completion: Callable[[typer.Context, str], complete.Completions],
    *,
    has_name: bool = True,
) -> Any:
    name = f", or its name if no other {what} has it" if has_name else ""
    return typer.Argument(
        metavar=what.upper(),
        help=f"The {what}'s id, or a unique prefix of it{name}.",
        autocompletion=completion,
    )


Url = Annotated[
    str,
    typer.Option("--url", envvar="TRAINHALL_URL", help="URL of the coordinator.", metavar="URL"),
]
Output = Annotated[
    Format, typer.Option("--output", "-o", help="Output format; name prints ids only.")
]
# Of parameters named otherwise than `output`: a file's default for those may be `name`.
Report = Annotated[
    ReportFormat, typer.Option("--output", "-o", help="Output format of a report, without ids.")
]
JobId = Annotated[str, id_argument("job", complete.jobs)]
JobIds = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB",
        help="Ids of jobs, or unique prefixes of them, or names that no others have.",
        autocompletion=complete.jobs,
    ),
]
SPEC_FILE_HELP = (
    "A job spec in YAML or JSON; - reads standard input, with paths relative to the current folder."
)
SpecFile = Annotated[
    str,
    typer.Argument(metavar="FILE", help=SPEC_FILE_HELP),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Replace a value of the spec, as in training.steps=20. May be repeated.",
    ),
]
Project = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="NAME",
        help="Project that it belongs to.",
        show_default="the spec's, else TRAINHALL_PROJECT, else your only one",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        parser=duration,
        metavar="DURATION",
        help="Longest wait, as in 90s or 10m.",
    ),
]


def with_project(overrides: list[str] | None, project: str | None, at: str = "") -> list[str]:
    """Return overrides with the project that was given by an option.

    Args:
        at: beginning of the fields of the job spec.
    """
    own = [] if project is None else [f"{at}project={json.dumps(project)}"]
    return [*(overrides or ()), *own]


Host = Annotated[str, typer.Option("--host", envvar="TRAINHALL_HOST", help="Address to listen on.")]
Port = Annotated[
    int,
    typer.Option(
        "--port", envvar="TRAINHALL_PORT", min=0, max=65535,
        help="Port to listen on; 0 picks a free one. The URL is printed.",
    ),
]  # fmt: skip
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar="TRAINHALL_DATA_DIR",
        help="Folder for all data.",
        show_default="trainhall in the user's data folder",
        file_okay=False,
    ),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="DATABASE_URL",
        help="postgresql://… keeps the state in Postgres.",
        show_default="SQLite in the data folder",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="TRAINHALL_INSECURE",
        help="Answer on addresses other than loopback: everyone who can reach them may run code.",
    ),
]
Mock = Annotated[
    bool,
    typer.Option(
        "--mock",
        envvar="MOCK_DB",
        help="Simulate the whole cluster: nothing runs, nothing is kept.",
    ),
]
TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        envvar="TRAINHALL_TLS_CERT",
        help="Serve TLS with this certificate, in PEM, followed by those that vouch for it.",
        dir_okay=False,
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        envvar="TRAINHALL_TLS_KEY",
        help="Key of the certificate, in PEM.",
        dir_okay=False,
    ),
]
TlsSelfSigned = Annotated[
    bool,
    typer.Option(
        "--tls-self-signed",
        envvar="TRAINHALL_TLS_SELF_SIGNED",
        help="Serve TLS with a certificate that the coordinator makes and renews.",
    ),
]
ForwardDomain = Annotated[
    str | None,
    typer.Option(
        "--forward-domain",
        envvar="TRAINHALL_FORWARD_DOMAIN",
        metavar="DOMAIN",
        help="Open ports of jobs in the browser as JOB-PORT.DOMAIN. All names below it lead to the "
        "coordinator; `localhost` needs no name server.",
        show_default="not opened",
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        "--slots",
        envvar="TRAINHALL_SLOTS",
        min=0,
        max=MAX_SLOTS,
        help="CPU workers that this host may run at a time.",
        show_default="the number of cores",
    ),
]
RunAs = Annotated[
    str | None,
    typer.Option(
        "--run-as",
        envvar="TRAINHALL_RUN_AS",
        metavar="USER|FIRST-LAST",
        help="User that jobs run as, or a range of user ids, one for each job. Needs root.",
        show_default="the agent's user",
    ),
]
JobMemory = Annotated[
    float | None,
    typer.Option(
        "--job-memory",
        envvar="TRAINHALL_JOB_MEMORY",
        metavar="GIB",
        min=0.0625,
        max=2**20,
        help="Memory that each attempt may use on this host, in GiB; what takes more is killed. "
        "Needs control groups.",
        show_default="nearly all of it",
    ),
]
PassEnv = Annotated[
    list[str] | None,
    typer.Option(
        "--pass-env",
        envvar="TRAINHALL_PASS_ENV",
        metavar="NAME",
        help="Variable of the agent's environment that jobs get; `AWS_*` for all that begin so. "
        "Repeatable.",
        show_default="only the usual ones: docs/security.md",
    ),
]
# A parent process that ends, however it ends, closes this process's standard input.
Supervised = Annotated[bool, typer.Option("--supervised", hidden=True)]
