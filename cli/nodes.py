"""Commands about nodes: ls, add, remove."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from trainhall.cli import complete
from trainhall.cli import output as out
from trainhall.cli.connect import connect
from trainhall.cli.errors import CliError, Usage
from trainhall.cli.options import DEFAULT_URL, Format, Output, Url

if TYPE_CHECKING:
    from trainhall.cli.client import Client

app = typer.Typer(help="The hosts of the cluster: ls, add, remove.", no_args_is_help=True)


@app.command("list", hidden=True)
@app.command("ls")
def list_nodes(output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """List the nodes, their devices and what they are doing.

    \b
    Examples:
      trainhall nodes ls
      trainhall nodes ls -o json
    """
    with connect(url) as client:
        nodes = list(client.items("/cluster/nodes"))
        out.say_if_simulated(client)
    columns = [
        out.Column("ID", lambda n: n["id"]),
        out.Column("NAME", lambda n: n["name"]),
        out.Column("STATE", lambda n: n["state"]),
        out.Column("DEVICES", _devices),
        out.Column("BUSY", _busy, right=True),
        out.Column("VERSION", lambda n: n["agent_version"] or ""),
        out.Column("SEEN", lambda n: out.age(n["last_seen_at"]), right=True),
        out.Column("REASON", lambda n: n["reason"] or ""),
    ]
    out.print_items(nodes, columns, output, empty="No nodes. Add one with `trainhall nodes add`.")


@app.command("add")
def add(
    name: Annotated[
        str | None, typer.Argument(help="A name for the node.", show_default="chosen")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="A label. May be repeated."),
    ] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Announce a node and print the command to run on it. Its token works once.

    \b
    Examples:
      trainhall nodes add gpu-07
      trainhall nodes add gpu-07 --label rack=b
    """
    body: out.Json = {"labels": _labels(label)}
    if name is not None:
        body["name"] = name
    with connect(url) as client:
        node = client.request("POST", "/cluster/nodes", json=body)
    if output is Format.TABLE:
        out.say(f"Run this on {node['name']}:")
    if node["note"]:
        out.say(f"Note: {node['note']}.")
    out.print_item(node, output, lambda: str(node["command"]))


@app.command("rm", hidden=True)
@app.command("remove")
def remove(
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE", help="The node's id or name.", autocompletion=complete.nodes
        ),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask when jobs have to move.")
    ] = False,
    url: Url = DEFAULT_URL,
    output: Output = Format.TABLE,
) -> None:
    """Remove a node: it gets no new work, its jobs save and move, and then it goes.

    \b
    Examples:
      trainhall nodes remove gpu-07
      trainhall nodes remove gpu-07 --yes
    """
    with connect(url) as client:
        found = client.node(node)
        if not yes:
            _ask_about_jobs(client, found)
        client.request("DELETE", f"/cluster/nodes/{found['id']}")
    out.print_item(found, output, lambda: f"{found['name']} is being removed")


def _ask_about_jobs(client: "Client", node: out.Json) -> None:
    """Say which jobs would move, and go on only if the person agrees.

    Raises:
        Usage: nobody is there to be asked.
        CliError: they said no.
    """
    moving = sorted({device["job_id"] for device in node["devices"] if device["job_id"]})
    if not moving:
        return
    jobs = [client.get(f"/training/jobs/{job_id}") for job_id in moving]
    out.say(f"Removing {node['name']} makes these jobs save and wait for other devices:")
    columns = [
        out.Column("ID", lambda j: j["id"]),
        out.Column("NAME", lambda j: j["name"]),
        out.Column("STATE", lambda j: j["state"]),
        out.Column("STEP", lambda j: str(j["step"]), right=True),
    ]
    out.say(out.indented(out.table(jobs, columns)))
    if not sys.stdin.isatty():
        count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
        raise Usage(f"{count} would move; --yes removes {node['name']} all the same")
    if not typer.confirm("Remove it?", err=True):
        raise CliError(f"{node['name']} stays")


def _labels(given: list[str] | None) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise Usage(f"--label takes KEY=VALUE, not {text!r}")
        labels[key] = value
    return labels


def _devices(node: out.Json) -> str:
    counts: dict[str, int] = {}
    for device in node["devices"]:
        what = "CPU slot" if device["kind"] == "cpu" else str(device["name"])
        counts[what] = counts.get(what, 0) + 1
    return ", ".join(f"{count} × {what}" for what, count in counts.items())


def _busy(node: out.Json) -> str:
    devices = node["devices"]
    return f"{sum(1 for d in devices if d['job_id'])}/{len(devices)}"
