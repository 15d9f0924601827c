"""`trainhall ls --queue` and `trainhall quotas`, page by page."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainhall.cli.base.client import Client
from trainhall.cli.base.options import Format
from trainhall.cli.jobs.listing import command as listing
from trainhall.cli.jobs.queue_history import earlier_position, place_of
from trainhall.cli.nodes import quotas

URL = "http://lab:8000"
ENTRY = {
    "job_id": "77c0de15f00d", "name": "gpt", "user": "maria", "project": "default",
    "priority": 0, "position": 1,
    "queued_at": "2026-01-01T00:00:00Z", "reason": "needs 8 GPUs on one host",
    "history": [],
}  # fmt: skip
ADA = {"kind": "user", "name": "ada", "limit": 8, "used": 7, "waiting": 2}
BOB = {"kind": "user", "name": "bob", "limit": None, "used": 1, "waiting": 0}


class Coordinator:
    """A client of a coordinator that answers these pages to whatever is asked."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        self._pages = pages

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def pages(
        self, path: str, *, limit: int | None = None, history: bool = False, **of: str | None
    ) -> Iterator[Any]:
        del limit, of
        assert history == (path == "/cluster/queue")
        return iter(self._pages)

    def is_simulated(self) -> bool:
        return False


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    def answering(*pages: dict[str, Any]) -> None:
        for module in (listing, quotas):
            monkeypatch.setattr(module, "connect", lambda _: Coordinator(*pages))

    return answering


def test_truncated_queue_is_marked(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def listed(total: int) -> tuple[str, str]:
        answer({"items": [ENTRY], "total": total}, {"items": [ENTRY], "total": total})
        listing.list_jobs(queue=True, limit=2, url=URL)
        return capsys.readouterr()

    data, notes = listed(1234)
    assert len(data.splitlines()) == 3
    assert notes == "The first 2 of 1234 waiting jobs; --limit lists more.\n"
    assert listed(2)[1] == ""
    answer({"items": [], "total": 0})
    listing.list_jobs(queue=True, url=URL)
    assert capsys.readouterr() == ("", "The queue is empty.\n")


def ago(hours: float) -> str:
    return (datetime.now(UTC) - timedelta(hours=hours)).isoformat()


def history() -> list[dict[str, Any]]:
    return [
        {"since": ago(2.5), "until": ago(0.5), "position": 7},
        {"since": ago(0.5), "until": None, "position": 3},
    ]


def ended() -> list[dict[str, Any]]:
    before, after = history()
    return [{**before, "until": ago(1.5)}, {**after, "since": ago(1.5), "until": ago(0.5)}]


def test_queue_has_the_position_an_hour_ago() -> None:
    before, present = history()
    assert earlier_position([before, present], 3) == "an hour ago: 7"
    assert re.fullmatch(r"3\d min( \d+ s)? ago: 3", earlier_position([present], 2))
    assert earlier_position([present], 3) == ""
    assert earlier_position([{**present, "since": ago(0.0)}], 2) == ""
    assert earlier_position([], 1) == ""


@pytest.mark.parametrize(
    ("state", "items", "text"),
    [
        ("queued", lambda: [{"position": 3, "history": history()}], "position 3; an hour ago: 7"),
        ("queued", lambda: [{"position": 3, "history": []}], "position 3"),
        ("running", lambda: history()[:1], "waited 2 h: position 7 all along"),
        ("running", ended, "waited 2 h: position 7 at first, at last 3"),
        ("running", list, None),
    ],
)  # fmt: skip
def test_show_says_how_a_job_waits(
    state: str, items: Callable[[], list[Any]], text: str | None
) -> None:
    class Asked(Client):
        def __init__(self) -> None:
            pass

        def get(self, path: str, **_: Any) -> Any:
            assert path == (
                "/cluster/queue" if state == "queued" else "/training/jobs/x/queue-history"
            )
            return {"items": items()}

    assert place_of(Asked(), {"id": "x", "state": state}) == text


def test_quotas_are_listed_with_use(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    others = {"project": 1, "user": 16}
    answer({"items": [ADA], "others": others}, {"items": [BOB], "others": others})
    quotas.quotas(url=URL)
    data, notes = capsys.readouterr()
    assert [line.split() for line in data.splitlines()] == [
        ["KIND", "NAME", "USED", "QUOTA", "WAITING"],
        ["user", "ada", "7", "8", "2"],
        ["user", "bob", "1", "unlimited", "0"],
    ]
    assert notes == "Any other project may hold 1 device; any other user may hold 16 devices.\n"
    quotas.quotas(output=Format.JSON, url=URL)
    assert json.loads(capsys.readouterr().out) == [ADA, BOB]
    quotas.quotas(output=Format.NAME, url=URL)
    assert capsys.readouterr() == ("ada\nbob\n", "")


def test_quotas_are_empty_without_use(answer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    answer({"items": [], "others": {"project": None, "user": None}})
    quotas.quotas(url=URL)
    assert capsys.readouterr() == (
        "",
        "No project or user has a quota, holds devices or waits for some.\n",
    )
