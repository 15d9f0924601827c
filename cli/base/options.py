"""Options and arguments that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

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


Url = Annotated[
    str,
    typer.Option("--url", envvar="TRAINHALL_URL", help="Where the coordinator is.", metavar="URL"),
]
Output = Annotated[
    Format, typer.Option("--output", "-o", help="How to print; name prints ids alone.")
]
JobId = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="The job's id, or the first characters of it.",
        autocompletion=complete.jobs,
    ),
]
JobIds = Annotated[
    list[str],
    typer.Argument(
        metavar="JOB...",
        help="The ids of jobs, or the first characters of them.",
        autocompletion=complete.jobs,
    ),
]
SpecFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A job spec in YAML or JSON; - reads standard input.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Replace a value of the spec, as in training.steps=20. May be repeated.",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        parser=duration,
        metavar="DURATION",
        help="Stop waiting after: 90s, 10m.",
    ),
]

Host = Annotated[str, typer.Option("--host", envvar="TRAINHALL_HOST", help="Address to listen on.")]
Port = Annotated[
    int,
    typer.Option(
        "--port", envvar="TRAINHALL_PORT", min=0, max=65535,
        help="Port to listen on; 0 takes a free one. The URL is printed.",
    ),
]  # fmt: skip
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar="TRAINHALL_DATA_DIR",
        help="Folder of everything that is kept.",
        show_default="trainhall in the user's data folder",
        file_okay=False,
    ),
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="DATABASE_URL",
        help="postgresql://… to keep state in Postgres.",
        show_default="SQLite in the data folder",
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        envvar="TRAINHALL_INSECURE",
        help="Answer on addresses other than loopback: everyone who reaches it may run code.",
    ),
]
Mock = Annotated[
    bool,
    typer.Option(
        "--mock",
        envvar="MOCK_DB",
        help="Simulate the whole cluster: no agent, nothing is run, nothing is kept.",
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        "--slots",
        envvar="TRAINHALL_SLOTS",
        min=0,
        max=MAX_SLOTS,
        help="CPU workers that this host may run at once.",
        show_default="the number of cores",
    ),
]
# A parent process that ends, however it ends, closes this process's standard input.
Supervised = Annotated[bool, typer.Option("--supervised", hidden=True)]
