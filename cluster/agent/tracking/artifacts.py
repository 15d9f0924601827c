"""Artifacts of a run: files below the job's outputs, by MLflow's `mlflow-artifacts` API."""

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from trainhall.cluster.agent.tracking.mlflow_api import EXPERIMENT
from trainhall.cluster.agent.tracking.record import Record
from trainhall.cluster.wire.mlflow import ApiError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Artifacts:
    """
    Args:
        folder: that of the job's own run; one of a nested run lies within, under its name.
    """

    def __init__(self, record: Record, folder: Path) -> None:
        self._record = record
        self._folder = folder

    def store(self, path: str, parts: Iterable[bytes]) -> None:
        """Store a file; it appears as a whole.

        Raises:
            ApiError: the path is none of this job's, or the file cannot be written.
        """
        target = self._find(path)
        temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}.{id(parts)}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("wb") as file:
                    for part in parts:
                        file.write(part)
                temporary.replace(target)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
        except OSError as error:
            why = f"the artifact {path} cannot be written: {error.strerror or error}"
            status = 507 if error.errno in _FULL else 400
            raise ApiError(status, "INVALID_STATE", why) from None

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading.

        Raises:
            ApiError: there is none.
        """
        try:
            return self._find(path).open("rb")
        except OSError as error:
            raise ApiError(
                404, "RESOURCE_DOES_NOT_EXIST", f"there is no artifact {path}: {error.strerror}"
            ) from None

    def list(self, path: str) -> dict[str, Any]:
        """Return names in a folder, as MLflow's server lists them."""
        folder = self._find(path, is_folder=True)
        if not folder.is_dir():
            return {"files": []}
        files: list[dict[str, Any]] = []
        for entry in sorted(folder.iterdir()):
            if entry.is_dir():
                files.append({"path": entry.name, "is_dir": True})
            elif entry.is_file() and not entry.name.endswith(".part"):
                size = entry.stat().st_size
                files.append({"path": entry.name, "is_dir": False, "file_size": size})
        return {"files": files}

    def remove(self, path: str) -> None:
        """Remove a file or a folder, if it is there."""
        found = self._find(path)
        if found.is_dir():
            shutil.rmtree(found, ignore_errors=True)
        else:
            found.unlink(missing_ok=True)

    def _find(self, path: str, *, is_folder: bool = False) -> Path:
        """Return the file of `EXPERIMENT/RUN/artifacts/PATH`."""
        parts = [part for part in path.split("/") if part]
        run = self._record.find(parts[1]) if len(parts) > 1 else None
        known = parts[:1] == [EXPERIMENT] and run is not None and parts[2:3] == ["artifacts"]
        rest = parts[3:]
        if not known or run is None or not (rest or is_folder):
            raise ApiError(
                404,
                "RESOURCE_DOES_NOT_EXIST",
                f"{path!r} is no artifact of this job; they begin with "
                f"{EXPERIMENT}/{self._record.run.id}/artifacts/",
            )
        if any(part in (".", "..") or "\0" in part for part in rest):
            raise ApiError(
                400, "INVALID_PARAMETER_VALUE", f"the path {path!r} must not leave its folder"
            )
        return Path(self._folder, *filter(None, [run.prefix.rstrip("/")]), *rest)
