"""`trainhall submit`: what it says of a job that does not start now."""

from pathlib import Path
from typing import Any

import pytest

from trainhall.cli.base.errors import UnreachableError
from trainhall.cli.jobs import commands as jobs

NEVER = {"when": "never", "position": 1, "expected_at": None, "reason": "needs 8 CPU slots"}
LATER = {**NEVER, "when": "later", "position": 3}
NOW = {**NEVER, "when": "now", "reason": "on lab"}


class Coordinator:
    def __init__(self, outlook: Any) -> None:
        self._outlook = outlook
        self.asked: list[bool] = []

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, spec: Any, *, dry_run: bool = False, deadline: float = 0) -> Any:
        del deadline
        self.asked.append(dry_run)
        if not dry_run:
            return {"id": "3f2a00000000", "name": spec["name"], "state": "queued"}
        if self._outlook is None:
            raise UnreachableError("it does not answer")
        return {"outlook": self._outlook} if self._outlook else {}

    def page_of(self, job_id: str) -> str:
        return f"http://lab:8000/jobs/{job_id}"


@pytest.mark.parametrize(
    ("outlook", "message"),
    [
        (NEVER, "On the cluster as it is now, it will never start: needs 8 CPU slots.\n"),
        (LATER, "It is number 3 in the queue: needs 8 CPU slots.\n"),
        (NOW, ""),
        (None, ""),
        ({}, ""),  # of an older version
    ],
)
def test_submit_prints_the_waiting_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outlook: Any,
    message: str,
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("{name: wide, task: {name: digits}, training: {steps: 5}}")
    coordinator = Coordinator(outlook)
    monkeypatch.setattr(jobs, "connect", lambda _: coordinator)
    jobs.submit([str(file)])
    assert capsys.readouterr() == (
        "3f2a00000000\n",
        f"wide is queued. See http://lab:8000/jobs/3f2a00000000\n{message}",
    )
    assert coordinator.asked == [True, False]
