"""Commands about alerts: ls, show, add, change, enable, disable, test, log, remove."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainhall.cli.base import complete
from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import UsageError
from trainhall.cli.base.options import DEFAULT_URL, Format, Output, Url
from trainhall.cli.base.quantities import duration
from trainhall.cluster.durations import format_duration

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

app = typer.Typer(
    help="Send messages about jobs, nodes, disks and quotas to people and programs.",
    no_args_is_help=True,
)

AlertRef = Annotated[
    str,
    typer.Argument(
        metavar="ALERT", help="The alert's id, or a unique prefix of it, or its name.",
        autocompletion=complete.alerts,
    ),
]  # fmt: skip
On = Annotated[
    list[str] | None,
    typer.Option(
        "--on",
        metavar="CONDITION",
        help="job.completed, job.failed, job.stuck, job.waiting, loss.not_finite, loss.spike, "
        "node.down, disk.filling or quota.reached. May be repeated, or separated by commas.",
    ),
]
Webhook = Annotated[
    str | None, typer.Option("--webhook", metavar="URL", help="Send signed messages to this URL.")
]
Slack = Annotated[
    str | None, typer.Option("--slack", metavar="URL", help="Send to an incoming webhook of Slack.")
]
Mail = Annotated[
    str | None, typer.Option("--mail", metavar="ADDRESS", help="Send to this mail address.")
]
Browser = Annotated[bool, typer.Option("--browser", help="Notify browsers with an open dashboard.")]
Job = Annotated[
    str | None,
    typer.Option("--job", help="Only of this job.", autocompletion=complete.jobs),
]
Project = Annotated[str | None, typer.Option("--project", help="Only of jobs of this project.")]
User = Annotated[str | None, typer.Option("--user", help="Only of jobs of this user.")]
Waiting = Annotated[
    float | None,
    typer.Option(
        "--waiting", parser=duration, metavar="DURATION",
        help="job.waiting: longest wait in the queue.  [default of new alerts: 1h]",
    ),
]  # fmt: skip
DiskPercent = Annotated[
    float | None,
    typer.Option("--disk-percent", help="disk.filling: limit.  [default of new alerts: 90]"),
]


@app.command("list", hidden=True)
@app.command("ls")
def list_alerts(output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """List the alerts.

    \b
    Examples:
      trainhall alerts ls
    """
    with connect(url) as client:
        alerts = list(client.items("/alerts"))
        out.notice_if_simulated(client)
    columns = [
        out.Column("ID", lambda a: a["id"]),
        out.Column("NAME", lambda a: a["name"]),
        out.Column("ON", lambda a: ",".join(a["on"])),
        out.Column("SCOPE", _scope),
        out.Column("TARGET", _target),
        out.Column("STATE", _state),
        out.Column("REASON", lambda a: a["reason"]),
    ]
    empty = "No alerts. Add one with `trainhall alerts add`."
    out.print_items(alerts, columns, output, empty=empty)


@app.command("show")
def show(alert: AlertRef, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Show an alert.

    \b
    Examples:
      trainhall alerts show c41d
    """
    with connect(url) as client:
        found = client.alert(alert)
        out.notice_if_simulated(client)
    out.print_item(found, output, lambda: _page(found))


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="Name of the alert, for people.")],
    on: On = None,
    webhook: Webhook = None,
    slack: Slack = None,
    mail: Mail = None,
    browser: Browser = False,
    job: Job = None,
    project: Project = None,
    user: User = None,
    waiting: Waiting = None,
    disk_percent: DiskPercent = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Add an alert and print it. The secret of a webhook is shown only now.

    \b
    Examples:
      trainhall alerts add nightly --on job.failed,job.stuck --slack https://hooks.slack.com/…
      trainhall alerts add vision --on job.completed --project vision --mail maria@example.org
      trainhall alerts add queue --on job.waiting --waiting 2h --webhook https://example.org/hook
    """
    body = {
        "name": name,
        "on": _conditions(on) or [],
        "target": _given_target(webhook, slack, mail, browser),
        **_limits(waiting, disk_percent),
    }
    if not body["on"]:
        raise UsageError("--on is required: the conditions to report, such as job.failed")
    if body["target"] is None:
        raise UsageError("give a target: --webhook, --slack, --mail or --browser")
    with connect(url) as client:
        if (scope := _given_scope(client, job, project, user)) is not None:
            body["scope"] = scope
        made = client.request("POST", "/alerts", json=body)
        out.notice_if_simulated(client)
    _print_changed(made, output)


@app.command("change")
def change(
    alert: AlertRef,
    name: Annotated[str | None, typer.Option("--name", help="New name.")] = None,
    on: On = None,
    webhook: Webhook = None,
    slack: Slack = None,
    mail: Mail = None,
    browser: Browser = False,
    job: Job = None,
    project: Project = None,
    user: User = None,
    waiting: Waiting = None,
    disk_percent: DiskPercent = None,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Change an alert; what is not given stays.

    \b
    Examples:
      trainhall alerts change nightly --on job.failed
    """
    changes = {
        "name": name,
        "on": _conditions(on),
        "target": _given_target(webhook, slack, mail, browser),
        **_limits(waiting, disk_percent),
    }
    with connect(url) as client:
        found = client.alert(alert)
        changes["scope"] = _given_scope(client, job, project, user)
        body = {key: value for key, value in changes.items() if value is not None}
        changed = client.request("PATCH", f"/alerts/{found['id']}", json=body)
    _print_changed(changed, output)


@app.command("enable")
def enable(alert: AlertRef, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Enable an alert that was disabled, by a user or because its target failed.

    \b
    Examples:
      trainhall alerts enable nightly
    """
    _enable(alert, True, output, url)


@app.command("disable")
def disable(alert: AlertRef, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Disable an alert: it reports nothing until it is enabled.

    \b
    Examples:
      trainhall alerts disable nightly
    """
    _enable(alert, False, output, url)


@app.command("test")
def send_test(alert: AlertRef, output: Output = Format.TABLE, url: Url = DEFAULT_URL) -> None:
    """Send a test message; `trainhall alerts log` shows what became of it.

    \b
    Examples:
      trainhall alerts test nightly
    """
    with connect(url) as client:
        alert_id = client.alert(alert)["id"]
        sent = client.request("POST", f"/alerts/{alert_id}/test")
        out.notice_if_simulated(client)
    out.print_item(sent, output, lambda: f"{sent['id']}  {sent['state']}")


@app.command("log")
def log(
    alert: AlertRef,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Newest messages.")] = 20,
    output: Output = Format.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the messages of an alert, the newest first, and what became of each.

    \b
    Examples:
      trainhall alerts log nightly
    """
    with connect(url) as client:
        alert_id = client.alert(alert)["id"]
        items = list(client.items(f"/alerts/{alert_id}/deliveries", limit=limit))
        out.notice_if_simulated(client)
    columns = [
        out.Column("TIME", lambda d: out.moment(d["created_at"])),
        out.Column("CONDITION", lambda d: d["condition"]),
        out.Column("STATE", lambda d: d["state"]),
        out.Column("TRIES", lambda d: str(d["tries"]), right=True),
        out.Column("MESSAGE", lambda d: d["text"]),
        out.Column("ERROR", lambda d: d["error"] or ""),
    ]
    out.print_items(items, columns, output, empty="No messages.")


@app.command("remove")
def remove(alert: AlertRef, url: Url = DEFAULT_URL) -> None:
    """Remove an alert; messages that were not delivered are not sent any more.

    \b
    Examples:
      trainhall alerts remove nightly
    """
    with connect(url) as client:
        found = client.alert(alert)
        client.request("DELETE", f"/alerts/{found['id']}")
    out.notice(f"Removed {out.label(found)}.")


def _enable(alert: str, enabled: bool, output: Format, url: str) -> None:
    with connect(url) as client:
        alert_id = client.alert(alert)["id"]
        changed = client.request("PATCH", f"/alerts/{alert_id}", json={"enabled": enabled})
    _print_changed(changed, output)


def _print_changed(alert: out.Json, output: Format) -> None:
    if output is Format.TABLE and alert["secret"]:
        out.notice("Keep the secret, with which the receiver checks signatures: it is not shown "
                   "again.")  # fmt: skip
    out.print_item(alert, output, lambda: _page(alert))


def _conditions(on: list[str] | None) -> list[str] | None:
    return [each.strip() for text in on for each in text.split(",") if each.strip()] if on else None


def _limits(waiting: float | None, disk_percent: float | None) -> dict[str, Any]:
    given = {"waiting_seconds": waiting, "disk_percent": disk_percent}
    return {key: value for key, value in given.items() if value is not None}


def _given_target(
    webhook: str | None, slack: str | None, mail: str | None, browser: bool
) -> dict[str, str] | None:
    given = {"webhook": webhook, "slack": slack, "mail": mail and f"mailto:{mail}"}
    targets = [{"kind": kind, "url": url} for kind, url in given.items() if url is not None]
    if browser:
        targets.append({"kind": "browser"})
    if len(targets) > 1:
        raise UsageError("an alert has one target; add another alert for the other")
    return targets[0] if targets else None


def _given_scope(
    client: "Client", job: str | None, project: str | None, user: str | None
) -> dict[str, str] | None:
    given = {"job": job, "project": project, "user": user}
    scopes = [{"kind": kind, "value": value} for kind, value in given.items() if value is not None]
    if len(scopes) > 1:
        raise UsageError("give one of --job, --project and --user")
    if scopes and job is not None:
        scopes[0]["value"] = client.job_id(job)
    return scopes[0] if scopes else None


def _state(alert: out.Json) -> str:
    if not alert["enabled"]:
        return "disabled"
    return "failing" if alert["failing_since"] else "enabled"


def _scope(alert: out.Json) -> str:
    scope = alert["scope"]
    return str(scope["kind"]) if scope["value"] is None else f"{scope['kind']} {scope['value']}"


def _target(alert: out.Json) -> str:
    target = alert["target"]
    url = (target["url"] or "").removeprefix("mailto:")
    return f"{target['kind']} {url}".rstrip()


def _page(alert: out.Json) -> str:
    entries = [
        ("name", alert["name"]),
        ("id", alert["id"]),
        ("on", ", ".join(alert["on"])),
        ("scope", _scope(alert)),
        ("target", _target(alert)),
        ("state", out.state_and_reason(_state(alert), alert["reason"])),
        ("created", out.moment(alert["created_at"])),
    ]
    if "job.waiting" in alert["on"]:
        entries.append(("waiting", format_duration(alert["waiting_seconds"])))
    if "disk.filling" in alert["on"]:
        entries.append(("disk limit", f"{alert['disk_percent']:g} %"))
    if alert.get("secret"):
        entries.append(("secret", alert["secret"]))
    return out.pairs(entries)
