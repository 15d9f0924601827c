"""Commands to jobs: what they print, also where one refuses, or no answer comes any more."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from trainhall.cli.base.errors import CliError, NotFoundError, UnreachableError, WrongStateError
from trainhall.cli.base.options import Format
from trainhall.cli.jobs import commands as jobs


class Refusing:
    """A client that pauses every job but these."""

    def __init__(self, **errors: CliError) -> None:
        self._errors = errors
        self.asked: list[str] = []

    def job_id(self, reference: str) -> str:
        return reference

    def job(self, reference: str) -> dict[str, str]:
        return {"id": reference}

    def request(self, method: str, path: str, json: None) -> Any:
        job_id = path.split("/")[-2]
        self.asked.append(job_id)
        if job_id in self._errors:
            raise self._errors[job_id]
        return {"id": job_id, "state": "pausing", "reason": "pause requested by a user"}


def pause(monkeypatch: pytest.MonkeyPatch, client: Refusing, *references: str) -> CliError:
    @contextlib.contextmanager
    def connect(url: str) -> Iterator[Refusing]:
        yield client

    monkeypatch.setattr(jobs, "connect", connect)
    with pytest.raises(CliError) as refused:
        jobs.pause([*references], Format.NAME, "http://lab:8000")
    return refused.value


def test_several_jobs_continue_after_a_refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Refusing(b=WrongStateError("b is paused"), d=NotFoundError("there is no job 'd'"))
    assert pause(monkeypatch, client, "a", "b", "c", "d").message == "b is paused"
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("a\nc\n", "trainhall: there is no job 'd'\n")


def test_several_jobs_report_progress_when_disconnected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Refusing(b=UnreachableError("no coordinator answers"))
    assert pause(monkeypatch, client, "a", "b", "c").exit_code == UnreachableError.exit_code
    assert capsys.readouterr().out == "a\n"
    assert client.asked == ["a", "b"], "the others would only wait in vain"


@pytest.mark.parametrize(
    ("state", "resources", "printed"),
    [
        ("paused", {"workers": 4}, "paused; runs with 4 workers when it is resumed"),
        ("queued", {"workers": 1}, "queued; runs with 1 worker when it starts"),
        (
            "recovering",
            {"min_workers": 2, "max_workers": 8},
            "recovering; runs with 2 to 8 workers when it starts",
        ),
        ("pausing", {"workers": 4}, "pausing; runs with 4 workers when it is resumed"),
        (
            "running",
            {"min_workers": 2, "max_workers": 4},
            "running: 2 ranks on gpu-07; it has 2 to 4 workers from now on",
        ),
        ("starting", {"workers": 4}, "starting: resize requested by a user: 4 workers"),
    ],
)
def test_resize_prints_what_happens(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    state: str,
    resources: dict[str, int],
    printed: str,
) -> None:
    class Resized(Refusing):
        def request(self, method: str, path: str, json: object = None) -> Any:
            code, reason = "running", "2 ranks on gpu-07"
            if state == "starting" and method == "GET":
                code, reason = "resize_requested", "resize requested by a user: 4 workers"
            return {
                "id": "a1", "name": "net", "state": state, "reason": reason, "reason_code": code,
                "spec": {"resources": resources},
            }  # fmt: skip

        def submit(self, spec: Any, *, dry_run: bool, deadline: float) -> Any:
            assert (spec, dry_run) == ({"resources": resources}, True)
            return {"shortage": "needs 8 CPU slots; the whole cluster has 2 CPU slots"}

    @contextlib.contextmanager
    def connect(url: str) -> Iterator[Refusing]:
        yield Resized()

    monkeypatch.setattr(jobs, "connect", connect)
    jobs.resize("a1", workers=4, output=Format.TABLE, url="http://lab:8000")
    shown = capsys.readouterr()
    assert shown.out == f"net (a1)  {printed}\n"
    assert shown.err == (
        "On the cluster as it is now, the job will never have that size: needs 8 CPU slots; the "
        "whole cluster has 2 CPU slots.\n"
    )
