"""The server's own log: one line an entry, on standard error."""

import io
import logging
import re
import sys
from typing import Any, TextIO

import structlog

# All but tab and line feed, which stack traces have. A terminal would obey the others; those that
# reverse the direction of text hide what follows.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logging(level: str = "info") -> None:
    """Set up this process's log, for structlog and for libraries that use the standard one."""
    terminal = sys.stderr.isatty()
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(exception_formatter=write_traceback)
        if terminal
        else structlog.processors.LogfmtRenderer(
            key_order=["timestamp", "level", "event"], bool_as_flag=False
        )
    )
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not terminal:
        processors.append(structlog.processors.format_exc_info)
    processors.append(escape_control_characters)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        level=max(_LEVELS[level], logging.WARNING),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def escape_control_characters(
    _logger: object, _method: str, entry: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Write control characters of foreign text, such as a URL's, as `\\x1b`."""
    return {key: value if key == "exc_info" else _escaped(value) for key, value in entry.items()}


def write_traceback(stream: TextIO, exc_info: structlog.typing.ExcInfo) -> None:
    """Write a traceback to a terminal; its message may be foreign text, too."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    stream.write(_escaped(text.getvalue()))


def _escaped(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], str(value))
