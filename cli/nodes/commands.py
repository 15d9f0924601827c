"""Commands about nodes: ls, show, add, label, drain, undrain, remove."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from trainhall.cli.base import complete
from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UNFINISHED, CliError, UsageError, WrongStateError
from trainhall.cli.base.options import DEFAULT_URL, Format, Output, Timeout, Url

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

app = typer.Typer(
    help="List, add, label, drain and remove nodes.",
    no_args_is_help=True,
)

NodeName = Annotated[
    str,
    typer.Argument(metavar="NODE", help="The node's id or name.", autocompletion=complete.nodes),
]
POLL_SECONDS = 1.0
NOTHING_RUNS = ("drained", "pending")
"""States of a node that is to be drained in which no more jobs leave it."""


@app.command("list", hidden=True)
@app.command("ls")
def list_nodes(output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """List the nodes, their devices and how many are busy.

    \b
    Examples:
      trainhall nodes ls
    """
    with connect(url) as client:
        nodes = list(client.items("/cluster/nodes"))
        out.notice_if_simulated(client)
    columns = [
        out.Column("ID", lambda n: n["id"]),
        out.Column("NAME", lambda n: n["name"]),
        out.Column("STATE", lambda n: n["state"]),
        out.Column("SINCE", lambda n: out.age(n["state_at"]), right=True),
        out.Column("DEVICES", _devices),
        out.Column("BUSY", _busy, right=True),
        out.Column("VERSION", lambda n: n["agent_version"] or ""),
        out.Column("SEEN", lambda n: out.age(n["last_seen_at"]), right=True),
        *([out.Column("JOBS OF", _of_projects)] if any(map(_is_limited, nodes)) else []),
        out.Column("REASON", lambda n: n["reason"] or ""),
    ]
    out.print_items(nodes, columns, output, empty="No nodes. Add one with `trainhall nodes add`.")


@app.command("add")
def add(
    name: Annotated[
        str | None, typer.Argument(help="Name of the node.", show_default="chosen")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="Label for the node. May be repeated."),
    ] = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Register a node and print the command that joins it. The token works once.

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
        out.notice(f"Run this on {node['name']}:")
    if node["replaced_token"]:
        out.notice("Note: the token that it was given before no longer works.")
    if node["note"]:
        out.notice(f"Note: {node['note']}.")
    out.print_item(node, output, lambda: str(node["command"]))


@app.command("show")
def show(node: NodeName, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Show a node: state, labels, devices, events.

    \b
    Examples:
      trainhall nodes show gpu-07
    """
    with connect(url) as client:
        found = client.node(node)
        found["events"] = client.get(f"/cluster/nodes/{found['id']}/events")["items"]
        out.notice_if_simulated(client)
    out.print_item(found, output, lambda: _page(found))


@app.command("label")
def label(
    node: NodeName,
    changes: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE|KEY-", help="Set a label, or remove it.")
    ],
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Set and remove labels, by which jobs select nodes.

    \b
    Examples:
      trainhall nodes label gpu-07 gpu=a100 rack-
    """
    body = {"labels": _label_changes(changes)}
    with connect(url) as client:
        found = client.node(node)
        changed = client.request("PATCH", f"/cluster/nodes/{found['id']}", json=body)
    out.print_item(changed, output, lambda: f"{changed['name']}  {_shown(changed['labels'])}")


@app.command("set")
def set_(
    node: NodeName,
    projects: Annotated[
        str,
        typer.Option(
            "--projects", metavar="A,B", help="The only projects whose jobs it gets; '' for all."
        ),
    ],
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Limit a node to jobs of some projects. Jobs that run there stay.

    \b
    Examples:
      trainhall nodes set gpu-07 --projects vision,speech
      trainhall nodes set gpu-07 --projects ''
    """
    names = [name.strip() for name in projects.split(",") if name.strip()]
    with connect(url) as client:
        found = client.node(node)
        body = {"projects": names or None}
        changed = client.request("PATCH", f"/cluster/nodes/{found['id']}", json=body)
    out.print_item(changed, output, lambda: f"{changed['name']}  {_of_projects(changed)}")


def _is_limited(node: out.Json) -> bool:
    return node["projects"] is not None


def _of_projects(node: out.Json) -> str:
    if node["projects"] is None:
        return "all projects"
    return ", ".join(node["projects"]) or "other projects only"


@app.command("drain")
def drain(
    node: NodeName,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Reason, shown with the node.")
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return once nothing runs on the node.")
    ] = False,
    timeout: Timeout = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Move jobs off a node, and keep new ones away until `undrain`.

    Its jobs save a checkpoint and continue on other nodes.

    \b
    Examples:
      trainhall nodes drain gpu-07 --reason "new disk" --wait --timeout 10m

    \b
    Exit code 101: something still runs there after --timeout.
    """
    if timeout is not None and not wait:
        raise UsageError("--timeout needs --wait")
    body = {} if reason is None else {"reason": reason}
    with connect(url) as client:
        found = client.node(node)
        drained = client.request("POST", f"/cluster/nodes/{found['id']}/drain", json=body)
        if wait:
            drained = _wait_until_drained(client, drained, timeout)
    out.print_item(drained, output, lambda: _state(drained))
    if wait and drained["state"] not in NOTHING_RUNS:
        out.notice(f"{drained['name']} is still {drained['state']} after {timeout:g} s")
        raise typer.Exit(UNFINISHED)


@app.command("resume", hidden=True)
@app.command("undrain")
def undrain(node: NodeName, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Let a drained or quarantined node take jobs again.

    \b
    Examples:
      trainhall nodes undrain gpu-07
    """
    with connect(url) as client:
        found = client.node(node)
        back = client.request("POST", f"/cluster/nodes/{found['id']}/undrain")
    out.print_item(back, output, lambda: _state(back))


@app.command("rm", hidden=True)
@app.command("remove")
def remove(
    node: NodeName,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask, even if jobs have to move.")
    ] = False,
    url: Url = DEFAULT_URL,
    output: Output = Format.TABLE,
) -> None:
    """Remove a node, once its jobs have saved and moved.

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
    """List the jobs that would move, and continue only if the user agrees.

    Raises:
        UsageError: there is no terminal to ask.
        CliError: they said no.
    """
    moving = sorted({device["job_id"] for device in node["devices"] if device["job_id"]})
    if not moving:
        return
    jobs = [client.get(f"/training/jobs/{job_id}") for job_id in moving]
    out.notice(f"If {node['name']} is removed, these jobs save and wait for other devices:")
    columns = [
        out.Column("ID", lambda j: j["id"]),
        out.Column("NAME", lambda j: j["name"]),
        out.Column("STATE", lambda j: j["state"]),
        out.Column("STEP", lambda j: str(j["step"]), right=True),
    ]
    out.notice(out.indented(out.table(jobs, columns)))
    if not sys.stdin.isatty():
        count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
        raise UsageError(f"{count} would have to move; confirm with --yes")
    if not typer.confirm(f"Remove {node['name']}?", err=True):
        raise CliError(f"{node['name']} was not removed")


def _wait_until_drained(client: "Client", node: out.Json, timeout: float | None) -> out.Json:
    """Return the node once nothing runs there, or when the time is up.

    Raises:
        WrongStateError: the drain was taken back, or the node is lost.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    reported: list[str] = []
    while node["state"] not in NOTHING_RUNS:
        if node["drain_reason"] is None and node["state"] != "draining":
            raise WrongStateError(f"the drain of {node['name']} was undone")
        if node["state"] == "lost":
            raise WrongStateError(f"{_state(node)}; what runs there is unknown")
        jobs = sorted({_job(device) for device in node["devices"] if device["busy"]})
        if jobs and jobs != reported:
            out.notice(f"Waiting for {', '.join(jobs)}.")
            reported = jobs
        if deadline is not None and time.monotonic() >= deadline:
            break
        time.sleep(POLL_SECONDS)
        node = client.get(f"/cluster/nodes/{node['id']}")
    return node


def _state(node: out.Json) -> str:
    return f"{node['name']}  {out.state_and_reason(node['state'], node['reason'])}"


def _page(node: out.Json) -> str:
    entries = [
        ("id", node["id"]),
        ("name", node["name"]),
        ("state", node["state"]),
        ("reason", node["reason"]),
        ("since", f"{out.moment(node['state_at'])} ({out.age(node['state_at'])})"),
        ("seen", out.age(node["last_seen_at"])),
        ("labels", _shown(node["labels"])),
        ("jobs of", _of_projects(node)),
        ("address", node["address"]),
        ("version", node["agent_version"] or ""),
    ]
    if node["drain_reason"] and node["state"] not in ("draining", "drained"):
        entries.insert(4, ("drain requested", node["drain_reason"]))
    devices = [
        out.Column("DEVICE", lambda d: str(d["index"])),
        out.Column("NAME", lambda d: f"{d['name']}, gone" if d.get("gone") else d["name"]),
        out.Column("MEMORY", lambda d: out.size(d["memory_total"]), right=True),
        out.Column("JOB", _job),
    ]
    events = [
        out.Column("TIME", lambda e: out.moment(e["time"])),
        out.Column("STATE", lambda e: e["state"]),
        out.Column("REASON", lambda e: e["reason"]),
    ]
    parts = [out.pairs(entries)]
    if node["devices"]:
        parts.append(out.table(node["devices"], devices))
    parts.append(out.table(node["events"], events))
    return "\n\n".join(parts)


def _job(device: out.Json) -> str:
    """Name the job that holds a device; empty without one."""
    held = {"name": device["job_name"] or "", "id": device["job_id"]}
    if device["job_id"]:
        return out.label(held)
    return out.FOREIGN_JOB if device["busy"] else ""


def _shown(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "no labels"


def _label_changes(given: list[str]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if equals and key:
            changes[key] = value
        elif not equals and len(text) > 1 and text.endswith("-"):
            changes[text[:-1]] = None
        else:
            raise UsageError(f"KEY=VALUE sets a label and KEY- removes it; {text!r} is neither")
    return changes


def _labels(given: list[str] | None) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--label takes KEY=VALUE, not {text!r}")
        labels[key] = value
    return labels


def _devices(node: out.Json) -> str:
    counts: dict[str, int] = {}
    for device in node["devices"]:
        what = "CPU slot" if device["kind"] == "cpu" else str(device["name"])
        what += " (gone)" if device.get("gone") else ""
        counts[what] = counts.get(what, 0) + 1
    return ", ".join(f"{count} × {what}" for what, count in counts.items())


def _busy(node: out.Json) -> str:
    devices = node["devices"]
    return f"{sum(1 for d in devices if d['busy'])}/{len(devices)}"
