"""Reading TensorBoard's folders on disk, without TensorBoard: each with event files is a run."""

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainhall.cli.base import output as out
from trainhall.cli.base.errors import UsageError
from trainhall.cli.imports.runs import OldArtifact, OldPoint, OldRun
from trainhall.cluster.agent.event_files.folders import MARK
from trainhall.cluster.agent.event_files.reader import DamagedFileError, read_file

_LAST_SECOND = 2**43


def read_folder(root: Path) -> Iterator[OldRun]:
    """Yield the runs below a folder. Links are not followed.

    Raises:
        UsageError: there are none.
    """
    if not root.is_dir():
        raise UsageError(f"there is no folder {root}")
    group = root.resolve().name or "runs"
    found = False
    for folder, names, files in os.walk(root):
        names.sort()
        events = [path for name in sorted(files) if _is_event_file(path := Path(folder, name))]
        if events:
            found = True
            relative = Path(folder).relative_to(root).as_posix()
            yield _run_of(events, group, group if relative == "." else relative)
    if not found:
        raise UsageError(
            f"{root} has no event files of TensorBoard (*{MARK}*): give the folder that "
            "`tensorboard --logdir` gets"
        )


def _is_event_file(path: Path) -> bool:
    return MARK in path.name and stat.S_ISREG(path.lstat().st_mode)


@dataclass
class _Content:
    """Content of the event files of a run."""

    points: dict[str, list[OldPoint]] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    start: float = _LAST_SECOND
    end: float = 0.0


def _run_of(files: Sequence[Path], group: str, name: str) -> OldRun:
    content = _Content()
    for path in files:
        try:
            _read(path, content)
        except DamagedFileError as error:
            out.notice(f"{error}: what follows there is left out")
        except OSError as error:
            out.notice(f"{path} is left out: {error.strerror or error}")
    start = int(1000 * min(content.start, content.end))

    def artifacts() -> Iterator[OldArtifact]:
        for path in files:
            yield OldArtifact(path.name, lambda path=path: path.open("rb"))  # type: ignore[misc]

    return OldRun(
        # The same for the same files, wherever they are by then.
        id=hashlib.sha256(f"{group}/{name}/{files[0].name}".encode()).hexdigest()[:32],
        group=group,
        name=name,
        status="FINISHED",
        start=start,
        end=int(1000 * content.end),
        parameters=content.parameters,
        tags={},
        metrics=lambda: iter(content.points.items()),
        artifacts=artifacts,
    )


def _read(path: Path, content: _Content) -> None:
    for event in read_file(path):
        time = event.wall_time if 0 <= event.wall_time < _LAST_SECOND else 0.0
        content.start, content.end = min(content.start, time), max(content.end, time)
        content.parameters |= event.parameters
        for tag, value in event.scalars:
            point = OldPoint(event.step, int(1000 * time), value)
            content.points.setdefault(tag, []).append(point)
