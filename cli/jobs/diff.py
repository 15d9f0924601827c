"""`trainhall diff`: how two jobs differ in spec, packages, data and code."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainhall.cli.base import output as out
from trainhall.cli.base.connect import connect
from trainhall.cli.base.errors import NotAllowedError
from trainhall.cli.base.options import DEFAULT_URL, JobId, Report, ReportFormat, Url

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client

_BASE = ("python", "os", "cuda", "driver")
_UNCOMPARED = ("code", "tags", "notes")
"""Fields of the spec that say nothing of the work, or are compared by their contents."""


def diff(
    job: JobId,
    other: JobId,
    output: Report = ReportFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """Show how two jobs differ: spec and parameters, packages and driver, data, commit and code.

    \b
    Examples:
      trainhall diff 3f2a 91bc
      trainhall diff 3f2a 91bc -o json
    """
    with connect(url) as client:
        jobs = [client.job(job), client.job(other)]
        paths = [f"/training/jobs/{each['id']}" for each in jobs]
        packages = differing_packages(client, *jobs)
        origins = [client.get(f"{path}/provenance") for path in paths]
        try:
            code: out.Json | None = client.get(f"{paths[0]}/code/diff", other=jobs[1]["id"])
        except NotAllowedError:
            code = None
    found = {
        "spec": _rows(*(dict(_flat(_compared(_spec_of(each)))) for each in jobs)),
        "packages": packages,
        "data": differing_data(client, *jobs),
        "git": _rows(*(_commit(origin) for origin in origins)),
        "code": code["items"] if code is not None and code["identical"] is not None else None,
    }
    if output is not ReportFormat.TABLE:
        print(out.rendered(found, output))
        return
    print(_page(found, [each["id"] for each in jobs]))
    if code is None:
        out.notice("Code is not compared: your role may not read it.")
    elif code["identical"] is None:
        out.notice("Files are not compared: of code in git only the commits are compared.")


def _spec_of(job: out.Json) -> Mapping[str, Any]:
    """Return the spec of a job; of a run, which has none, the parameters that it has logged."""
    return job["spec"] or {"parameters": job["parameters"]}


def _compared(spec: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in spec.items() if name not in _UNCOMPARED}
    # The hash of an upload says nothing; the address of a repository does.
    return {**found, "code": spec["code"]} if isinstance(spec.get("code"), Mapping) else found


def _flat(value: Any, field: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a document by their dotted fields."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{field}.{key}" if field else key)
    else:
        yield field, value


def _rows(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[out.Json]:
    """Return what differs, by name; null where a job has none."""
    names = [*one, *(name for name in two if name not in one)]
    return [
        {"name": name, "first": one.get(name), "second": two.get(name)}
        for name in names
        if one.get(name) != two.get(name)
    ]


def differing_packages(client: "Client", *jobs: out.Json) -> list[out.Json] | None:
    """Return the packages in which two jobs differ; None unless both reported theirs."""
    found = [client.get(f"/training/jobs/{job['id']}/packages") for job in jobs]
    if any(each["attempt"] is None for each in found):
        return None
    return _rows(*({**{name: e[name] for name in _BASE}, **e["packages"]} for e in found))


def differing_data(client: "Client", *jobs: out.Json) -> list[out.Json]:
    """Return the data sets whose fingerprints differ between two jobs, as far as hosts have
    reported them."""
    return _rows(*(_fingerprints(client, job) for job in jobs))


def _fingerprints(client: "Client", job: out.Json) -> dict[str, str]:
    """Return the SHA-256 of a job's data sets by name, as far as hosts have reported them."""
    if not (job["spec"] or {}).get("data"):
        return {}
    items = client.get(f"/training/jobs/{job['id']}/data")["items"]
    return {each["name"]: each["sha256"] for each in items if each["sha256"]}


def _commit(origin: out.Json) -> dict[str, Any]:
    git = origin["git"] or {}
    return {name: git.get(name) for name in ("commit", "branch", "remote", "dirty")}


def _page(found: out.Json, ids: list[str]) -> str:
    parts = [
        _table(title, found[key], ids)
        for title, key in (
            ("Spec", "spec"),
            ("Packages", "packages"),
            ("Data", "data"),
            ("Git", "git"),
        )
        if found[key]
    ]
    if found["packages"] is None:
        parts.append("Packages are not compared: a job has not reported its own.")
    if found["code"]:
        parts.append("Code\n" + "\n".join(_file(each) for each in found["code"]))
    elif found["code"] is not None:
        parts.append("Code: identical")
    return "\n\n".join(parts)


def _table(title: str, rows: list[out.Json], ids: list[str]) -> str:
    columns = [
        out.Column("NAME", lambda row: row["name"]),
        out.Column(ids[0], lambda row: _cell(row["first"])),
        out.Column(ids[1], lambda row: _cell(row["second"])),
    ]
    return f"{title}\n" + out.indented(out.table(rows, columns))


def _cell(value: Any) -> str:
    return out.BLANK if value is None else out.one_line(str(value))


def _file(difference: out.Json) -> str:
    """Format the difference of a file: its text, or that it differs."""
    if difference["diff"] is None:
        return out.one_line(f"{difference['change']}: {difference['path']} (binary or large)")
    lines = difference["diff"].split("\n")
    return "\n".join(out.one_line(line) for line in lines) or f"{difference['path']}: mode"
