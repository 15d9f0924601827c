"""What foreign text may do to the log: nothing."""

import io

import structlog

from trainhall.api.logs import escape_control_characters, write_traceback


def test_control_characters_never_reach_the_log() -> None:
    entry = {
        "event": "request",
        "path": "/\x1b]52;c;aGk=\x07\x9b\u202e",  # writes to the clipboard of a terminal
        "error": ValueError("line\r\n\x1b[2J"),
        "duration_ms": 1.5,
        "ok": True,
        "user": None,
        "text": "tab\tand line\n",
    }
    clean = escape_control_characters(None, "info", entry)
    assert clean["path"] == r"/\x1b]52;c;aGk=\x07\x9b\u202e"
    assert clean["error"] == "line\\r\n\\x1b[2J"
    assert (clean["duration_ms"], clean["ok"], clean["user"]) == (1.5, True, None)
    assert clean["text"] == "tab\tand line\n"
    line = structlog.processors.LogfmtRenderer()(None, "info", dict(clean))
    assert isinstance(line, str)
    assert line.replace("\t", "").isprintable()


def test_control_characters_of_exceptions_never_reach_a_terminal() -> None:
    text = io.StringIO()
    error = ValueError("bad \x1b[2J")
    write_traceback(text, (ValueError, error, None))
    assert text.getvalue().endswith("ValueError: bad \\x1b[2J")
