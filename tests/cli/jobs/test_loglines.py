"""What a job writes can do nothing to the terminal that shows it."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from trainhall.cli.base.output import harmless
from trainhall.cli.jobs import follow, loglines
from trainhall.cli.jobs.loglines import LogPrinter
from trainhall.cli.main import app


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext", "plain\ttext"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[38;5;1mred\x1b[m", "\x1b[38;5;1mred\x1b[m"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]0;title\x1b\\after", "after"),
        ("\x1b]0;never ended", ""),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("\x1bcreset", "reset"),
        ("\x1b[6nasks", "asks"),
        ("bell\x07 nul\x00 c1\x9b31m", "bell nul c131m"),
        ("0%\r100%", "0%100%"),
        ("naïve 数字 🦊", "naïve 数字 🦊"),
    ],
)
def test_only_colours_pass(text: str, shown: str) -> None:
    assert harmless(text) == shown


@given(st.text())
def test_printable_text_is_untouched(text: str) -> None:
    plain = "".join(c for c in text if c.isprintable())
    assert harmless(plain) == plain


@given(st.text(alphabet="\x1b\x9b[]m0;?\\\x07aP_^X"))
def test_no_escape_but_a_colours_is_left(text: str) -> None:
    left = harmless(text)
    colourless = "".join(part for part in split_colours(left))
    assert "\x1b" not in colourless
    assert "\x9b" not in colourless


def test_tail_is_limited_to_the_servers_maximum() -> None:
    done = CliRunner().invoke(app, ["logs", "3f2a", "--tail", "20000"])
    assert done.exit_code == 2
    assert "must be at most 10,000 (given: 20000)" in done.output


class Pages:
    """Gives out lines of two attempts."""

    def get(self, path: str, **asked: object) -> Any:
        lines = [(1, "first"), (1, "second"), (2, "third")]
        items = [{"attempt": attempt, "rank": 0, "text": text} for attempt, text in lines]
        return {"items": [] if asked["after"] else items, "next_cursor": "end"}


def test_attempt_change_is_marked_between_lines(
    capfd: pytest.CaptureFixture[str],
) -> None:
    client: Any = Pages()
    LogPrinter(client, "j", rank=None, stream=None, attempt=None, prefixed=False).print_all(None)
    printed = capfd.readouterr()
    assert printed.out == "first\nsecond\nthird\n", "what is piped is what was written"
    assert printed.err == "-- attempt 2 --\n"


def test_follow_waits_for_a_last_line_without_a_break(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    class Ended:
        """Shows the last line a second after the job has ended."""

        shown = False

        def request(self, method: str, path: str, *, deadline: float) -> Any:
            return {"id": "j", "name": "x", "state": "completed"}

        def get(self, path: str, **asked: object) -> Any:
            line = {"attempt": 1, "rank": 0, "text": "no line break"}
            items = [line] if now > 1 and not self.shown else []
            self.shown = self.shown or bool(items)
            return {"items": items, "next_cursor": "end"}

    clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep)
    monkeypatch.setattr(loglines, "time", clock)
    monkeypatch.setattr(follow, "time", clock)
    client: Any = Ended()
    LogPrinter(client, "j", rank=None, stream=None, attempt=None, prefixed=False).follow(None)
    assert capfd.readouterr().out == "no line break\n"


@pytest.mark.parametrize(
    ("rank", "text", "prefixed", "shown"),
    [
        (0, "[rank0]: ValueError: bad luck", True, "[0] ValueError: bad luck"),
        (12, "[rank12]:", True, "[12] "),
        (0, "[rank0]:     raise ValueError", True, "[0]     raise ValueError"),
        (0, "[rank1]: of another one", True, "[0] [rank1]: of another one"),
        (0, "see [rank0]: within", True, "[0] see [rank0]: within"),
        (0, "[rank0]: alone", False, "[rank0]: alone"),
    ],
)
def test_line_has_one_rank_prefix(
    capfd: pytest.CaptureFixture[str], rank: int, text: str, prefixed: bool, shown: str
) -> None:
    class Page:
        def get(self, path: str, **asked: object) -> Any:
            return {"items": [{"attempt": 1, "rank": rank, "text": text}], "next_cursor": None}

    client: Any = Page()
    LogPrinter(client, "j", rank=None, stream=None, attempt=None, prefixed=prefixed).print_all(1)
    assert capfd.readouterr().out == f"{shown}\n"


def split_colours(text: str) -> list[str]:
    import re

    return re.split(r"\x1b\[[0-9;:]*m", text)
