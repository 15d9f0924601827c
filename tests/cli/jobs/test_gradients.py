"""`trainhall gradients` without a cluster: how long it waits, and what a local run writes."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainhall.cli.base.errors import CliError
from trainhall.cli.base.options import Format
from trainhall.cli.jobs import gradients
from trainhall.cli.local.metrics_file import append_line, cut_lines_after


@pytest.mark.parametrize("steps", [[], [{"step": 3, "attempt": 1, "norms": []}]])
def test_gradients_json_has_the_full_id(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], steps: list[Any]
) -> None:
    class Known:
        def job_id(self, reference: str) -> str:
            return {"3f2a": "3f2a9c51d07b"}[reference]

        def get(self, path: str, **asked: object) -> Any:
            assert path == "/training/jobs/3f2a9c51d07b/gradients"
            return {"steps": steps}

    @contextlib.contextmanager
    def connect(url: str) -> Iterator[Known]:
        yield Known()

    monkeypatch.setattr(gradients, "connect", connect)
    for form in (Format.JSON, Format.NAME):
        gradients.gradients("3f2a", False, 1.0, form, "http://lab:8000")
        printed = capsys.readouterr().out
        found = json.loads(printed)["id"] if form is Format.JSON else printed.strip()
        assert found == "3f2a9c51d07b"


class Ended:
    """A job that ends while it is asked."""

    def __init__(self, answered: int) -> None:
        self._answered = answered

    def request(self, method: str, path: str) -> Any:
        return {"asked": 1, "answered": 0}

    def get(self, path: str, **asked: object) -> Any:
        if path.endswith("/gradients"):
            return {"answered": self._answered}
        return {"id": "j", "name": "digits", "state": "completed"}


def capture(answered: int) -> None:
    client: Any = Ended(answered)
    gradients._capture(client, "j", "/training/jobs/j/gradients", timeout=1e9)


def test_gradients_stop_waiting_for_ended_job() -> None:
    with pytest.raises(CliError, match=r"job digits \(j\) is completed; no step was left"):
        capture(answered=0)
    capture(answered=1)


def test_gradients_file_drops_repeated_and_partial_lines(tmp_path: Path) -> None:
    path = tmp_path / "gradients.jsonl"
    cut_lines_after(path, 0)
    assert not path.exists()
    for step in (10, 20, 30):
        append_line(path, {"step": step})
    cut_lines_after(path, 20)
    assert path.read_text() == '{"step": 10}\n{"step": 20}\n'
    with path.open("a") as cut_off:
        cut_off.write('{"st')
    cut_lines_after(path, 25)
    append_line(path, {"step": 30})
    assert path.read_text() == '{"step": 10}\n{"step": 20}\n{"step": 30}\n'


def test_script_gets_no_advice_for_tasks() -> None:
    advice = gradients._no_gradients({"spec": {"script": {"path": "/train.py"}}})
    assert "trainhall.report(" in advice
    assert "capture_gradients" not in advice
    assert "capture_gradients_every_steps" in gradients._no_gradients({"spec": {"task": {}}})
