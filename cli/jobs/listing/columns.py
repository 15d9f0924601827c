"""Columns of lists of jobs, by the names that the dashboard has for them."""

from collections.abc import Sequence

from trainhall.cli.base import output as out
from trainhall.cli.base.errors import UsageError
from trainhall.cli.jobs import page
from trainhall.cli.owners import owner_columns
from trainhall.cluster.jobs.listing.keys import AGGREGATES, FIELDS, METRICS, NO, PARAMETERS, nearest
from trainhall.cluster.jobs.listing.query import parse_query


def _age(key: str, title: str) -> out.Column:
    return out.Column(title, lambda job: out.age(job[key]), right=True, spare=3)


NAMED = {
    "id": out.Column("ID", lambda job: job["id"]),
    "name": out.Column("NAME", lambda job: job["name"]),
    "state": out.Column("STATE", lambda job: job["state"]),
    "step": out.Column("STEP", page.step, right=True),
    "metric": out.Column("METRIC", out.main_metric, spare=2),
    "world_size": out.Column("WORKERS", lambda job: str(job["world_size"]), right=True, spare=1),
    "tags": out.Column("TAGS", page.tags),
    "duration": out.Column("RAN", out.ran, right=True),
    "created_at": _age("created_at", "AGE"),
    "reason": out.Column("REASON", page.warnings_and_reason),
    "started_at": _age("started_at", "STARTED"),
    "finished_at": _age("finished_at", "FINISHED"),
    "gpu_hours": out.Column("GPU-HOURS", lambda job: out.number(job["gpu_hours"]), right=True),
    "user": out.Column("OWNER", lambda job: str(job["user"] or out.BLANK)),
    "project": out.Column("PROJECT", lambda job: str(job["project"])),
    "task": out.Column("TASK", page.task),
    "strategy": out.Column("STRATEGY", page.strategy),
    "priority": out.Column("PRIORITY", lambda job: str(job["priority"]), right=True),
}
"""Columns that are no parameter or metric of the jobs."""


def default(values: Sequence[out.Column], jobs: list[out.Json], *, wide: bool) -> list[out.Column]:
    """Return the columns of a list, with those of parameters and metrics among them."""
    names = ["metric", "world_size"]
    names += ["tags"] if any(map(page.tags, jobs)) else []
    names += ["duration"] if wide else []
    names += ["created_at", "reason"]
    first = [NAMED[name] for name in ("id", "name", "state", "step")]
    first[2:2] = owner_columns(jobs, wide=wide)
    return [*first, *values, *(NAMED[name] for name in names)]


def chosen(names: str, jobs: list[out.Json]) -> list[out.Column]:
    """Return the columns of a list such as `name,state,lr,loss:min`.

    Raises:
        UsageError: a name is empty.
    """
    # As in a query, `loss.min` is right, too.
    keys = [name.strip().replace(":", ".") for name in names.split(",")]
    if "" in keys:
        raise UsageError("--columns needs names between its commas, such as name,state,loss:min")
    return [NAMED.get(key) or _value_column(_full_key(key, jobs)) for key in keys]


def notice_blank(columns: Sequence[out.Column], jobs: list[out.Json]) -> None:
    """Say which columns of parameters and metrics have no value."""
    for column in columns:
        blank = all(column.cell(job) == out.BLANK for job in jobs)
        if jobs and blank and column not in NAMED.values():
            near = nearest(column.title, list(NAMED)) or "."
            out.notice(f"None of these jobs has a value of {column.title}{near}")


def value_columns(
    keys: Sequence[str | None], query: str | None, jobs: list[out.Json]
) -> list[out.Column]:
    """Return columns of the parameters and metrics among keys, and of those in a query."""
    names = [(key or "").removeprefix("-") for key in keys]
    names += [term.field.text for term in parse_query(query or "") if term.field is not None]
    full = dict.fromkeys(
        _full_key(name, jobs) for name in names if name and name not in (*FIELDS, NO, *NAMED)
    )
    return [_value_column(key) for key in full]


def _full_key(key: str, jobs: list[out.Json]) -> str:
    """Return `parameters.NAME` or `metrics.NAME` for a key that may be short."""
    if key.startswith((PARAMETERS, METRICS)):
        return key
    is_parameter = any(key in job["parameters"] for job in jobs)
    return (PARAMETERS if is_parameter else METRICS) + key


def _value_column(key: str) -> out.Column:
    _, _, name = key.partition(".")

    def cell(job: out.Json) -> str:
        values = job["parameters"] if key.startswith(PARAMETERS) else job["metrics"]
        return out.number((values or {}).get(name, _of_range(job, name)))

    return out.Column(name, cell, right=True)


def _of_range(job: out.Json, name: str) -> float | None:
    """Return the minimum or maximum of a metric from NAME.min or NAME.max; None: neither."""
    metric, _, aggregate = name.rpartition(".")
    if aggregate not in AGGREGATES:
        return None
    ends: list[float | None] = job.get("metric_ranges", {}).get(metric, [None, None])
    return ends[AGGREGATES.index(aggregate)]
