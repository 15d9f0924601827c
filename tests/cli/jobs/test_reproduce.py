"""`trainhall reproduce`: what it submits, and what it says of the results."""

from typing import Any

import pytest
import typer

from trainhall.cli.jobs import reproduce as command
from trainhall.cli.jobs.reproduce import document_of

GIT = {"commit": "a" * 40}
SPEC: dict[str, Any] = {
    "name": "digits",
    "task": {"name": "digits"},
    "user": "maria",
    "tags": ["best"],
    "notes": "*Best*",
    "parallelism": {"strategy": "auto", "schedule": "gpipe"},
    "training": {"seed": 7, "pause_at": [5], "reproducible": True},
}


def test_spec_is_repeated_without_notes_and_pauses() -> None:
    job = {"id": "3f2a", "spec": SPEC, "plan": {"parallelism": {"strategy": "ddp", "data": 2}}}
    document = document_of(job, {"git": GIT, "command": ["trainhall", "submit"]})
    assert document.pop("provenance")["git"] == GIT
    assert document == {
        "name": "digits",
        "task": {"name": "digits"},
        "parallelism": {"strategy": "ddp", "schedule": "gpipe", "data": 2},
        "training": {"seed": 7, "reproducible": True},
    }
    script = {"id": "3f2a", "plan": None, "spec": {"name": "s", "training": {"pause_at": [5]}}}
    assert "training" not in document_of(script, {"git": None, "command": None})


def test_code_in_git_is_repeated_at_its_commit() -> None:
    code = {"git": "https://git.example/lab", "ref": "main"}
    job = {"id": "3f2a", "plan": None, "spec": {"name": "s", "code": code}}
    assert document_of(job, {"git": GIT, "command": None})["code"] == {**code, "ref": "a" * 40}
    assert document_of(job, {"git": None, "command": None})["code"] == code


class Coordinator:
    """Has two jobs with chains of two steps."""

    def __init__(self, second: float) -> None:
        self._losses = {"first": [0.5, 0.25], "again": [0.5, second]}

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def job(self, reference: str) -> Any:
        return {"id": reference, "name": reference, "plan": None, "spec": SPEC}

    def submit(self, document: Any) -> Any:
        assert document["training"]["seed"] == 7
        return {"id": "again"}

    def page_of(self, job_id: str) -> str:
        return f"http://lab/jobs/{job_id}"

    def get(self, path: str, **query: Any) -> Any:
        if path.endswith("/provenance"):
            return {"git": None, "command": None}
        if path.endswith("/packages"):
            version = "2.12" if "first" in path else "2.13"
            base = {"attempt": 1, "python": "3.12", "os": "Linux", "cuda": None, "driver": None}
            return {**base, "packages": {"torch": version}}
        losses = self._losses[path.rpartition("/")[2]]
        steps = range(query.get("from_step", 2), query.get("to_step", 2) + 1)
        names = query["names"].split(",")
        series = []
        for name in names:
            points = [{"step": s, "value": self._value(name, losses, s)} for s in steps]
            if name != "chain_weights":
                series.append({"name": name, "rank": None, "points": points})
        return {"series": series}

    def _value(self, name: str, losses: list[float], step: int) -> float:
        return (
            float(hash(tuple(losses[:step])) % 2**40) if name == "chain_link" else losses[step - 1]
        )


@pytest.mark.parametrize(
    ("second", "code", "words"),
    [(0.25, 0, "Identical through step 2."), (0.75, 1, "The runs diverge at step 2")],
)
def test_results_are_compared(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    second: float,
    code: int,
    words: str,
) -> None:
    coordinator = Coordinator(second)
    monkeypatch.setattr(command, "connect", lambda _: coordinator)
    monkeypatch.setattr("trainhall.cli.jobs.follow.until_final", lambda *_: 0)
    with pytest.raises(typer.Exit) as ended:
        command.reproduce("first", follow=True)
    assert ended.value.exit_code == code
    err = capsys.readouterr().err
    assert words in err
    assert "Other versions than then: torch." in err
