"""Real ranks profile the same steps, and the training goes on as without."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from support.cluster.attempts import Attempt, RankServer
from support.waiting import eventually

from trainhall.training.link.control import Control
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import Command
from trainhall.training.link.profiling.messages import ProfileRequest
from trainhall.training.link.status import EXIT_PAUSED


def digits(workers: int, steps: int = 60, **parallelism: Any) -> dict[str, Any]:
    return {
        "task": {"name": "digits", "params": {"hidden": [32, 16]}},
        "resources": {"workers": workers},
        "parallelism": parallelism,
        "training": {"steps": steps, "global_batch_size": 48, "seed": 7},
    }


def ask(folder: AttemptFolder, request: ProfileRequest) -> None:
    replace_json(folder.profile(request.number), request)
    Control.ask_profile(folder.control, request.number)


def reports(attempt: Attempt, rank: int) -> list[dict[str, Any]]:
    return [event["data"] for event in attempt.events(rank, "profile")]


def trace_of(folder: AttemptFolder, number: int, rank: int) -> list[dict[str, Any]]:
    path = folder.path / "outputs" / "profiles" / str(number) / f"rank-{rank}.json.gz"
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return events


@pytest.mark.parametrize(
    ("workers", "parallelism"),
    [
        pytest.param(2, {"strategy": "ddp"}, id="ddp"),
        pytest.param(2, {"strategy": "fsdp"}, id="fsdp"),
        pytest.param(2, {"strategy": "pipeline"}, id="pipeline"),
        pytest.param(3, {"strategy": "parameter_server"}, id="parameter_server"),
    ],
)
def test_ranks_profile_the_same_steps(
    ranks: RankServer, tmp_path: Path, workers: int, parallelism: dict[str, Any]
) -> None:
    folder = ranks.start(tmp_path, digits(workers, **parallelism))
    ask(folder, ProfileRequest(number=1, steps=5, ranks=[0, workers - 1]))
    attempt = ranks.wait(folder)
    assert attempt.codes == [0] * workers
    began, first = reports(attempt, 0)
    (other,) = reports(attempt, workers - 1)
    assert (began["state"], first["state"], other["state"]) == ("started", "saved", "saved")
    steps = [(each["first_step"], each["last_step"]) for each in (first, other)]
    assert steps[0] == steps[1]
    assert steps[0][1] == steps[0][0] + 4
    assert began["first_step"] == steps[0][0]
    assert first["message"] == ""
    for rank in (0, workers - 1):
        assert any(each.get("cat") == "cpu_op" for each in trace_of(folder, 1, rank))
    assert not list(folder.rank(0).glob("trace*")), "nothing else is left"


def test_profile_ends_early_with_the_job(ranks: RankServer, tmp_path: Path) -> None:
    folder = ranks.start(tmp_path, digits(1, steps=30))
    ask(folder, ProfileRequest(number=3, steps=200, ranks=[0], stacks=True, memory=True))
    attempt = ranks.wait(folder)
    assert attempt.codes == [0]
    _, end = reports(attempt, 0)
    taken = end["last_step"] - end["first_step"] + 1
    assert end["last_step"] == 30
    assert end["message"] == f"it ended after {taken} of 200 steps: the job took its last step"
    events = trace_of(folder, 3, 0)
    assert any(each.get("cat") == "python_function" for each in events)
    assert any(each["name"] == "[memory]" for each in events)
    kinds = [event["kind"] for event in attempt.events()]
    assert kinds.index("profile") < kinds.index("completed")


def test_profile_stops_no_training(ranks: RankServer, tmp_path: Path) -> None:
    """A request that cannot be read, and a trace that cannot be written."""
    folder = ranks.start(tmp_path, digits(1, steps=300))
    folder.profile(1).write_text("no request")
    Control.ask_profile(folder.control, 1)
    (folder.path / "outputs").write_text("in the way of the folder")
    ask(folder, ProfileRequest(number=2, steps=2, ranks=[0]))
    attempt = ranks.wait(folder)
    assert attempt.codes == [0]
    messages = [
        (each["number"], each["message"]) for each in reports(attempt, 0) if each["message"]
    ]
    assert messages[-1] == (2, "the process that writes the trace ended with exit code 1")
    assert messages[0][0] in (1, 2)


def test_profile_of_a_paused_job_is_kept(ranks: RankServer, tmp_path: Path) -> None:
    slow = {"name": "synthetic", "params": {"step_seconds": 0.02, "hidden": [8]}}
    folder = ranks.start(tmp_path, {**digits(2, steps=100_000), "task": slow})
    ask(folder, ProfileRequest(number=1, steps=200, ranks=[1]))
    path = folder.events(1)
    eventually("the start", lambda: path.exists() and '"started"' in path.read_text())
    Control(folder.control).send(Command.PAUSE)
    attempt = ranks.wait(folder)
    assert attempt.codes == [EXIT_PAUSED] * 2
    _, end = reports(attempt, 1)
    assert end["state"] == "saved"
    assert end["message"].endswith("of 200 steps: the job paused")
    assert trace_of(folder, 1, 1)
