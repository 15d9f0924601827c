"""What foreign text may do to the log: nothing."""

import structlog

from trainhall.api.logs import escape_control_characters


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
    assert line.isprintable() or "\t" in line
