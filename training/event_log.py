"""The log of agents, shims and ranks: an event code and fields, like the coordinator's, on the
standard library alone. Structlog takes 5 MB and a good part of a process's start.
"""

import json
import logging
import re
from typing import Any

_PLAIN = re.compile(r"[^\s\"=\x00-\x1f]+")


class EventLogger:
    """Writes lines like `coordinator_unreachable coordinator=http://… error="no route to host"`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def info(self, event: str, **fields: Any) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, *, exc_info: BaseException | None = None, **fields: Any) -> None:
        self._write(logging.ERROR, event, fields, exc_info)

    def exception(self, event: str, **fields: Any) -> None:
        """Write an error with the traceback of the exception that is handled."""
        self._write(logging.ERROR, event, fields, True)

    def _write(
        self,
        level: int,
        event: str,
        fields: dict[str, Any],
        exc_info: BaseException | bool | None = None,
    ) -> None:
        if self._logger.isEnabledFor(level):
            parts = [event, *(f"{name}={_quoted(value)}" for name, value in fields.items())]
            self._logger.log(level, "%s", " ".join(parts), exc_info=exc_info)


def _quoted(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
