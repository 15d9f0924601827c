"""Finds the line of a user's own code that raised an exception."""

import sysconfig
import traceback
from pathlib import Path

import trainhall

_SCHEMES = ("stdlib", "platstdlib", "purelib", "platlib")
_LIBRARIES = [Path(sysconfig.get_path(name)).resolve() for name in _SCHEMES]
_OURS = Path(trainhall.__file__).parent


class UserTraceback:
    """Finds the user's frames of an exception in the code of a task, `package.module:Class`."""

    def __init__(self, task_name: str) -> None:
        self._task = task_name
        package = task_name.partition(":")[0].partition(".")[0]
        self._names = (package, f"{package}.py")

    def location(self, error: BaseException) -> str | None:
        """Return the innermost line of the user's own code, as `FILE, line N, in FUNCTION`."""
        if isinstance(error, SyntaxError) and error.filename and self._is_own(error.filename):
            return f"{error.filename}, line {error.lineno}"
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if self._is_own(frame.filename):
                return f"{frame.filename}, line {frame.lineno}, in {frame.name}"
        return None

    def message(self, error: BaseException) -> str:
        """Return where the exception came from, and its message without its type."""
        return f"{self.location(error) or f'task {self._task}'}: {_message(error)}"

    def typed_message(self, error: BaseException) -> str:
        """Return the same with its type, as a traceback ends."""
        where = self.location(error) or f"task {self._task}"
        return f"{where}: {type(error).__name__}: {_message(error)}"

    def _is_own(self, filename: str) -> bool:
        path = Path(filename)
        if filename.startswith("<") or _within(path, [_OURS]):
            return False
        # The package may be installed beside the libraries.
        installed = [folder / name for folder in _LIBRARIES for name in self._names]
        return _within(path, installed) or not _within(path, _LIBRARIES)


def _message(error: BaseException) -> str:
    return error.msg if isinstance(error, SyntaxError) else str(error)


def _within(path: Path, folders: list[Path]) -> bool:
    # As it was imported, and where links lead.
    return any(p.is_relative_to(folder) for p in (path, path.resolve()) for folder in folders)
