"""`trainhall exec`, `forward` and `stacks`: into a running job."""

from typing import Annotated

import typer

from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import DEFAULT_URL, Format, JobId, Output, Url

MAX_PORT = 65535
Rank = Annotated[
    int, typer.Option("--rank", metavar="RANK", min=0, help="The rank beside which it runs.")
]


def execute(
    job: JobId,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]", help="Program and arguments.", show_default="a shell"
        ),
    ] = None,
    rank: Rank = 0,
    tty: Annotated[
        bool | None,
        typer.Option(
            "--tty/--no-tty",
            help="Give the command a terminal, or pipes.",
            show_default="a terminal where this is one",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Run a command beside a rank of a running job, such as a shell.

    It has the rank's user, limits, environment and working folder, and ends with the attempt. The
    exit code is the command's. In a terminal, Enter ~ . ends a session that hangs.

    \b
    Examples:
      trainhall exec 3f2a
      trainhall exec 3f2a --rank 3 -- nvidia-smi
      trainhall exec 3f2a -- tar cz outputs > outputs.tgz
    """
    import asyncio

    from trainhall.cli.tunnels import execute as session
    from trainhall.cli.tunnels import terminal

    in_terminal = terminal.is_terminal() if tty is None else tty
    if in_terminal and not terminal.is_terminal():
        raise UsageError("--tty needs a terminal for input and output; leave it out")
    with connect(url) as client:
        path = f"/training/jobs/{client.job_id(job)}/exec?rank={rank}"
        try:
            code = asyncio.run(
                session.execute(client, path, list(command or ()), in_terminal=in_terminal)
            )
        except KeyboardInterrupt:
            code = 130
    raise typer.Exit(code)


def forward(
    job: JobId,
    port: Annotated[
        str,
        typer.Argument(
            metavar="PORT[:LOCAL]",
            help="Port beside the rank, and the one to open on this host: 0 takes a free one.",
        ),
    ],
    rank: Rank = 0,
    url: Url = DEFAULT_URL,
) -> None:
    """Reach a port of a running job, such as Jupyter's, from this host, until Ctrl-C.

    It listens on 127.0.0.1 alone, and no port is opened on the job's host: there the connections
    come from the job's own user, to 127.0.0.1.

    \b
    Examples:
      trainhall forward 3f2a 8888
      trainhall forward 3f2a 6006:0 --rank 2
    """
    import asyncio

    from trainhall.cli.tunnels import forward as session

    there, local = _ports(port)

    def on_open(number: int) -> None:
        out.notice(f"127.0.0.1:{number} is port {there} beside rank {rank} (Ctrl-C ends it)")

    with connect(url) as client:
        path = f"/training/jobs/{client.job_id(job)}/forward/{there}?rank={rank}"
        try:
            asyncio.run(session.forward(client, path, local, on_open))
        except KeyboardInterrupt:
            raise typer.Exit from None


def _ports(text: str) -> tuple[int, int]:
    """Return the port beside the rank, and the local one."""
    there, colon, local = text.partition(":")
    numbers = [int(part) if part.isascii() and part.isdigit() else -1 for part in (there, local)]
    if not colon:
        numbers[1] = numbers[0]
    if not (1 <= numbers[0] <= MAX_PORT and 0 <= numbers[1] <= MAX_PORT):
        raise UsageError(
            f"{text!r} is no PORT[:LOCAL]: ports lie between 1 and {MAX_PORT}, as in 8888 or "
            "8888:9999"
        )
    return numbers[0], numbers[1]


def stacks(
    job: JobId,
    rank: Annotated[
        list[int] | None,
        typer.Option(
            "--rank", metavar="RANK", min=0, help="Only this rank. Repeatable.", show_default="all"
        ),
    ] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show what the ranks of a running job do at this moment: the stacks of all threads.

    \b
    Examples:
      trainhall stacks 3f2a
      trainhall stacks 3f2a --rank 3
    """
    with connect(url) as client:
        job_id = client.job_id(job)
        path = f"/training/jobs/{job_id}/stacks"
        found = client.request("POST", path, params={"rank": rank or []})
    out.print_item({"id": job_id, **found}, output, lambda: _text(found["items"]))


def _text(items: list[out.Json]) -> str:
    parts = []
    for item in items:
        process = f", process {item['pid']}" if item["pid"] is not None else ""
        title = f"Rank {item['rank']} on {item['node']}{process}"
        text = "\n".join(map(out.harmless, item["text"].rstrip().splitlines()))
        parts.append(f"{title}\n{out.indented(text)}")
    return "\n\n".join(parts)
