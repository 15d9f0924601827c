"""Data sets of a job, as the REST API returns them."""

from collections.abc import Iterable
from typing import Any, Literal

from trainhall.db.provenance import DataFingerprint
from trainhall.db.views import Time, View


class JobDataSet(View):
    """A data set of a job. What the hosts found is null until the first has prepared it."""

    name: str
    path: str | None
    """File or folder on every node; null for a download."""
    url: str | None
    kind: Literal["contents", "listing"] | None
    """Hashed parts: `contents`, or as `listing` names, sizes and times of modification."""
    sha256: str | None
    """Fingerprint: two jobs with the same, of `contents`, had the same data."""
    bytes: int | None
    """Size of the files."""
    files: int | None
    is_partial: bool | None
    """There are more files than the fingerprint is of."""
    node: str | None
    """Name of the node that prepared it first, in the newest attempt."""
    attempt: int | None
    prepared_at: Time | None


class JobDataSets(View):
    items: list[JobDataSet]


def data_sets_view(spec: dict[str, Any], rows: Iterable[DataFingerprint]) -> JobDataSets:
    """Return the view of a job's data sets.

    Args:
        spec: the job's, as stored.
        rows: what hosts have reported, of any attempt.
    """
    newest: dict[str, DataFingerprint] = {}
    for row in sorted(rows, key=lambda row: row.attempt):
        newest[row.name] = row
    return JobDataSets(items=[_view(given, newest) for given in spec.get("data") or ()])


def _view(given: dict[str, Any], newest: dict[str, DataFingerprint]) -> JobDataSet:
    name, source = given["name"], {key: given.get(key) for key in ("path", "url")}
    row = newest.get(name)
    if row is not None:
        return JobDataSet.of(row, **source)
    return JobDataSet(
        name=name, **source, kind=None, sha256=None, bytes=None, files=None, is_partial=None,
        node=None, attempt=None, prepared_at=None,
    )  # fmt: skip
