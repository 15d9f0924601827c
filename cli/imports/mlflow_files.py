"""Reading MLflow's stores on disk: folders (`mlruns`) and SQLite (`mlflow.db`), without MLflow."""

import functools
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

import yaml

from trainhall.cli.base.errors import UsageError
from trainhall.cli.imports.runs import OldArtifact, OldPoint, OldRun

_STATUSES = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}


def read_store(path: Path) -> Iterator[OldRun]:
    """Yield the runs of a store, without those that were deleted.

    Raises:
        UsageError: it is none.
    """
    if path.is_dir():
        inner = path / "mlruns"
        yield from _read_folder(inner if inner.is_dir() else path)
    elif path.is_file():
        yield from _read_database(path)
    else:
        raise UsageError(f"there is no file or folder {path}")


# -- folders ------------------------------------------------------------------------------------


def _read_folder(root: Path) -> Iterator[OldRun]:
    experiments = sorted(root.glob("*/meta.yaml"))
    if not experiments:
        raise UsageError(
            f"{root} is no store of MLflow: it has no experiments (*/meta.yaml); give the folder "
            "mlruns, a mlflow.db or the address of a tracking server"
        )
    for file in experiments:
        experiment = _read_yaml(file)
        if _is_deleted(experiment):
            continue
        for meta in sorted(file.parent.glob("*/meta.yaml")):
            run = _read_yaml(meta)
            if "run_id" in run and not _is_deleted(run):
                yield _run_of_folder(meta.parent, run, str(experiment.get("name") or "Default"))


def _run_of_folder(folder: Path, run: dict[str, Any], group: str) -> OldRun:
    status = run.get("status")
    tags = _read_texts(folder / "tags")
    return OldRun(
        id=str(run["run_id"]),
        group=group,
        name=str(run.get("run_name") or tags.get("mlflow.runName") or run["run_id"]),
        status=_STATUSES.get(status, "FINISHED") if isinstance(status, int) else str(status),
        start=int(run.get("start_time") or 0),
        end=int(run["end_time"]) if run.get("end_time") else None,
        parameters=_read_texts(folder / "params"),
        tags=tags,
        metrics=functools.partial(_metrics_of_folder, folder / "metrics"),
        artifacts=functools.partial(_artifacts_of, folder / "artifacts"),
    )


def _metrics_of_folder(folder: Path) -> Iterator[tuple[str, Sequence[OldPoint]]]:
    for file in _files(folder):
        points = []
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            try:
                timestamp, value, *step = line.split()
                points.append(OldPoint(int(step[0]) if step else 0, int(timestamp), float(value)))
            except ValueError:
                raise UsageError(f"{file}, line {number}: {line[:80]!r} is no point") from None
        yield file.relative_to(folder).as_posix(), points


def _read_texts(folder: Path) -> dict[str, str]:
    # Not every byte that a program wrote there is text.
    return {
        file.relative_to(folder).as_posix(): file.read_text(errors="replace")
        for file in _files(folder)
    }


def _artifacts_of(folder: Path) -> Iterator[OldArtifact]:
    for file in _files(folder):
        path = file.relative_to(folder).as_posix()
        yield OldArtifact(path, functools.partial(_open, file))


def _open(file: Path) -> BinaryIO:
    return file.open("rb")


def _files(folder: Path) -> list[Path]:
    # A link could lead to any file of the host.
    if folder.is_symlink():
        return []
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(file.read_text(errors="replace"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}


def _is_deleted(meta: dict[str, Any]) -> bool:
    return meta.get("lifecycle_stage") == "deleted"


# -- SQLite -------------------------------------------------------------------------------------

_RUNS = """
SELECT r.run_uuid, r.name, r.status, r.start_time, r.end_time, r.artifact_uri, e.name
FROM runs r JOIN experiments e ON e.experiment_id = r.experiment_id
WHERE r.lifecycle_stage = 'active' AND e.lifecycle_stage = 'active'
ORDER BY r.start_time, r.run_uuid
"""


def _read_database(path: Path) -> Iterator[OldRun]:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            for row in database.execute(_RUNS).fetchall():
                run_id, name, status, start, end, artifacts, group = row
                yield OldRun(
                    id=run_id,
                    group=group,
                    name=name or run_id,
                    status=status,
                    start=start or 0,
                    end=end,
                    parameters=_pairs(database, "params", run_id),
                    tags=_pairs(database, "tags", run_id),
                    metrics=functools.partial(_metrics_of_database, database, run_id),
                    artifacts=functools.partial(_artifacts_of, _local(artifacts or "", path)),
                )
    except sqlite3.DatabaseError as error:
        raise UsageError(f"{path} is no database of MLflow: {error}") from None


def _pairs(database: sqlite3.Connection, table: str, run_id: str) -> dict[str, str]:
    rows = database.execute(f"SELECT key, value FROM {table} WHERE run_uuid = ?", [run_id])
    return {key: value or "" for key, value in rows}


def _metrics_of_database(
    database: sqlite3.Connection, run_id: str
) -> Iterator[tuple[str, Sequence[OldPoint]]]:
    rows = database.execute("SELECT DISTINCT key FROM metrics WHERE run_uuid = ?", [run_id])
    for (name,) in rows.fetchall():
        points = database.execute(
            "SELECT step, timestamp, value, is_nan FROM metrics WHERE run_uuid = ? AND key = ? "
            "ORDER BY timestamp, step",
            [run_id, name],
        )
        yield name, [OldPoint(s, t, float("nan") if nan else v) for s, t, v, nan in points]


def _local(uri: str, database: Path) -> Path:
    """Return the folder of an address of artifacts; one elsewhere has no files here."""
    parts = urlsplit(uri)
    if not parts.path or parts.scheme not in ("", "file"):
        return Path("/nonexistent")
    return database.parent / unquote(parts.path)
