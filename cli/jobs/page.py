"""A job in text: the page of `trainhall show`, and cells that lists of jobs share with it."""

import shlex
from datetime import datetime
from typing import Any

from trainhall.cli.base import output as out
from trainhall.training.common.units import brief

RECENT_EVENTS = 10
RECENT_CHECKPOINTS = 2
"""Most checkpoint events that are listed, to leave room for others."""


def reason(job: out.Json) -> str:
    return "" if job["reason"] in (None, job["state"]) else str(job["reason"])


def warnings_and_reason(job: out.Json) -> str:
    return "; ".join(text for text in (*out.warnings(job), reason(job)) if text)


def step(job: out.Json) -> str:
    total = job["total_steps"]
    if (job["spec"] or {}).get("script") and not total and not job["step"]:
        return ""  # it reports none, or none yet
    return f"{job['step']}/{total}" if total else str(job["step"])


def task(job: out.Json) -> str:
    """Return the name of a job's task; `script`, or `run` for one that runs elsewhere."""
    if job["spec"] is None:
        return "run"
    return str((job["spec"].get("task") or {}).get("name", "script"))


def tags(job: out.Json) -> str:
    return ", ".join(job.get("tags", ()))


def parameters(job: out.Json) -> str | None:
    """Format the parameters of a job; None without any."""
    given = job["parameters"]
    return ", ".join(f"{name} {out.number(value)}" for name, value in given.items()) or None


def environment(found: out.Json) -> str | None:
    """Name Python, torch and the system of an attempt, with the number of its packages."""
    if found["attempt"] is None:
        return None
    torch, number = found["packages"].get("torch"), len(found["packages"])
    parts = [
        f"Python {found['python']}",
        *([f"torch {torch}"] if torch else []),
        *([f"CUDA {found['cuda']}"] if found["cuda"] else []),
        *([f"driver {found['driver']}"] if found["driver"] else []),
        f"{number} package{'s' if number != 1 else ''}",
        found["os"],
        *([f"on {found['host']}"] if found["host"] else []),
    ]
    return ", ".join(parts)


def repository(found: out.Json) -> str | None:
    """Name commit, branch and remote of a job's code; None if it comes from no repository."""
    git = found["git"]
    if git is None:
        return None
    parts = [
        git["commit"][:12],
        *([f"branch {git['branch']}"] if git["branch"] else []),
        *(["with uncommitted changes"] if git["dirty"] else []),
        *([git["remote"]] if git["remote"] else []),
    ]
    return out.one_line(", ".join(parts))


def command_line(found: out.Json) -> str | None:
    """Format the command that submitted a job; None if there was none."""
    return out.one_line(shlex.join(found["command"])) if found["command"] else None


def diff_text(found: out.Json) -> str:
    """Return the uncommitted changes of a job's repository, or why there are none."""
    git = found["git"]
    if git is None:
        return "The job's code comes from no git repository."
    if not git["dirty"]:
        return f"No uncommitted changes: the code is commit {git['commit']}."
    if git["diff"] is None:
        return "Uncommitted changes were not recorded, or you may not read the project's code."
    if not git["diff"]:
        return "The uncommitted changes are new files, which a diff leaves out."
    cut = "\n(the rest was left out)" if git["diff_truncated"] else ""
    text = "\n".join(out.one_line(line) for line in git["diff"].rstrip().split("\n"))
    return "Uncommitted changes\n" + out.indented(text + cut)


def interactive(job: out.Json) -> str | None:
    """Describe the use of an interactive job; None for another job."""
    found = job.get("interactive")
    if found is None or job["state"] != "running":
        return None
    if found["idle_since"] is None:
        return f"in use; `trainhall exec {job['id']}` opens a shell"
    return (
        f"idle for {out.age(found['idle_since'])}, ends at {out.moment(found['ends_at'])}; "
        f"`trainhall exec {job['id']}` opens a shell"
    )


def has_environment(job: out.Json) -> bool:
    """Return whether hosts prepare an environment for a job."""
    given = (job["spec"] or {}).get("environment") or {}
    parts = ("python", "requirements", "project", "image")
    return any(given.get(name) is not None for name in parts)


def locked_environment(found: out.Json) -> str:
    """Describe the lock of a job's environment."""
    if found["locked_at"] is None:
        return "not locked yet: the first host that prepares it does"
    if found["image"] is not None:
        return f"{found['image']}, Python {found['python']} (pinned on {found['node']})"
    number = found["packages"]
    torch = "the host's torch" if found["torch"] == "host" else "no torch of the host"
    packages = f"{number} locked package{'s' if number != 1 else ''}"
    return f"Python {found['python']}, {packages}, {torch} (locked on {found['node']})"


def data_sets(found: out.Json) -> str | None:
    """Describe the data sets of a job as its hosts found them; None without any."""
    return "; ".join(map(_data_set, found["items"])) or None


def _data_set(item: out.Json) -> str:
    place = item["path"] or item["url"]
    if item["sha256"] is None:
        return out.one_line(f"{item['name']} ({place}): not prepared yet")
    files = f"{item['files']:,} file{'s' if item['files'] != 1 else ''}"
    more = ", and more files" if item["is_partial"] else ""
    how = "contents" if item["kind"] == "contents" else "names, sizes and times"
    return out.one_line(
        f"{item['name']} ({place}): {files}, {out.size(item['bytes'])}{more}, "
        f"SHA-256 of its {how} {item['sha256'][:12]}"
    )


def packages_table(found: out.Json) -> str:
    """List the packages of an attempt."""
    if not found["packages"]:
        return "No packages reported."
    rows = [{"name": name, "version": version} for name, version in found["packages"].items()]
    columns = [
        out.Column("PACKAGE", lambda row: row["name"]),
        out.Column("VERSION", lambda row: row["version"]),
    ]
    return "Packages\n" + out.indented(out.table(rows, columns))


def _attempt(job: out.Json) -> str:
    """Return the attempt, with its generation once its ranks have regrouped."""
    text = str(job["attempt"])
    return f"{text}, generation {job['generation']}" if job["generation"] > 1 else text


def recent_events(events: list[Any]) -> list[Any]:
    of_saves = ("checkpoint", "not_saved")
    saves = [event for event in events if event["kind"] in of_saves][-RECENT_CHECKPOINTS:]
    others = [event for event in events if event["kind"] not in of_saves][-RECENT_EVENTS:]
    return [*others, *saves]


def strategy(job: out.Json) -> str:
    """Format the spec's strategy with the mesh of its ranks, as in `fsdp, data 2 × shard 2`."""
    asked, mesh = (job["spec"] or {}).get("parallelism", {}), job["mesh"] or {}
    if job["spec"] is None:
        return ""
    name = asked.get("strategy", "ddp")
    sizes = [f"{dimension} {size}" for dimension, size in mesh.items() if size > 1]
    # Under ddp it is the number of workers.
    return ", ".join([name, *([" × ".join(sizes)] if sizes and name != "ddp" else [])])


def _workers(job: out.Json) -> str:
    resources = (job["spec"] or {}).get("resources", {})
    if "max_workers" not in resources:
        return str(job["world_size"])
    return f"{job['world_size']} of {resources['min_workers']} to {resources['max_workers']}"


def _place(job: out.Json) -> list[tuple[str, str]]:
    """Return the entries about where and how it runs."""
    if job["spec"] is None:
        return [("kind", "run (it runs elsewhere)"), ("group", job["group"] or out.BLANK)]
    is_script = bool(job["spec"].get("script"))
    return [
        ("attempt", _attempt(job)),
        ("workers", _workers(job)),
        *([] if is_script else [("strategy", strategy(job))]),
    ]


def job_page(
    job: out.Json,
    events: str | None,
    address: str,
    last: list[str | None],
    more: dict[str, str | None],
) -> str:
    entries = [
        ("id", job["id"]),
        ("name", job["name"]),
        ("owner", job["user"] or out.BLANK),
        ("project", job["project"]),
        ("state", job["state"]),
        ("reason", reason(job)),
        ("step", step(job)),
        *_place(job),
        *([("plan", job["plan"]["summary"])] if job.get("plan") else []),
        *(("warning", text) for text in out.warnings(job)),
        ("priority", str(job["priority"])),
        ("created", out.moment(job["created_at"])),
        ("ran", out.ran(job)),
        *([("tags", tags(job))] if tags(job) else []),
        *((name, text) for name, text in more.items() if text is not None),
        ("page", address),
    ]
    parts = [out.pairs(entries)]
    if job.get("plan"):
        parts.append("Plan\n" + out.indented(plan_page(job["plan"])))
    if job.get("notes"):
        parts.append("Notes\n" + out.indented(job["notes"]))
    if job["metrics"]:
        main = job["main_metric"] and job["main_metric"]["name"]
        names = sorted(job["metrics"], key=lambda name: (name != main, name))
        metrics = [(name, out.measured(name, job["metrics"][name])) for name in names]
        parts.append("Metrics\n" + out.indented(out.pairs(metrics)))
    return "\n\n".join([*parts, *(text for text in (events, *last) if text)])


def events_table(job: out.Json, events: list[Any], left_out: int) -> str | None:
    if not events:
        return None
    # Hosts report their events a little later, with their own time.
    in_order = sorted(events, key=lambda event: datetime.fromisoformat(event["time"]))
    columns = [
        out.Column("AGE", lambda e: out.age(e["time"]), right=True),
        out.Column("KIND", lambda e: e["kind"]),
        out.Column("WHAT", _what),
    ]
    table = out.table(in_order, columns)
    if left_out:
        table += f"\n{left_out} more; `trainhall show {job['id']} --events` lists all of them."
    return "Events\n" + out.indented(table)


def plan_page(plan: out.Json) -> str:
    """Explain why a planned job runs as it does, and how well that was predicted."""
    measured, errors = plan["measured"] or {}, plan["error"] or {}
    rows = [
        {"of": "memory", "key": "peak_memory_bytes", "format": lambda n: out.size(round(n))},
        {"of": "step", "key": "step_seconds", "format": brief},
    ]

    def cell(row: out.Json, values: out.Json) -> str:
        value = values.get(row["key"])
        return "" if value is None else str(row["format"](value))

    def error(row: out.Json) -> str:
        value = errors.get(row["key"])
        return "" if value is None else f"{100 * value:+.0f} %"

    columns = [
        out.Column("OF", lambda row: row["of"]),
        out.Column("PREDICTED", lambda row: cell(row, plan["prediction"]), right=True),
        out.Column("MEASURED", lambda row: cell(row, measured), right=True),
        out.Column("ERROR", error, right=True),
    ]
    return f"{out.one_line(plan['reason'])}\n{out.table(rows, columns)}"


def _what(event: out.Json) -> str:
    if event["kind"] == "state":
        return out.state_and_reason(event["data"]["state"], event["reason"])
    return event["reason"] or ""
