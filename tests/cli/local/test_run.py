"""`trainhall run`: what it writes, how it stops, and how it goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from support.forking import forks
from support.holds import STEPS, TESTS, Gate, free_task
from support.waiting import eventually

from trainhall.cli.local.local import LocalRun
from trainhall.training.link.launch import Command
from trainhall.training.link.status import ShimStatus
from trainhall.training.spec.parse import validate_spec

pytestmark = pytest.mark.acceptance

SPEC = """
name: digits
task: {name: digits, params: {dropout: 0.1}}
resources: {workers: 2, device: cpu}
training: {steps: 30, seed: 3, evaluate_every_steps: 10}
checkpoint: {every_steps: 10, keep_latest: 2}
"""


def synthetic(task: dict[str, Any], every_steps: int = 25) -> str:
    return f"""
name: synthetic
code: {TESTS}
task: {json.dumps(task)}
resources: {{workers: 2, device: cpu}}
training: {{steps: {STEPS}, global_batch_size: 32, seed: 3, capture_gradients_every_steps: 10}}
checkpoint: {{every_steps: {every_steps}}}
"""


class Run:
    """`trainhall run` in a process of its own."""

    def __init__(self, output: Path, process: forks.Fork | subprocess.Popen[str]) -> None:
        self.output = output
        self.process = process

    def finish(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=60)
        assert out == ""
        return self.process.returncode, err

    def wait_for_step(self, step: int) -> None:
        def reached() -> bool:
            assert self.process.poll() is None, self.finish()
            return last_step(self.output) >= step

        eventually(f"step {step}", reached)


Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts runs of a spec in a folder; none outlives the test."""
    runs: list[Run] = []

    def starter(text: str, name: str, *arguments: str) -> Run:
        spec = tmp_path / "job.yaml"
        spec.write_text(text)
        output = tmp_path / name
        run = forks.start(files, forks.COMMAND, ["run", str(spec), "-o", str(output), *arguments])
        runs.append(Run(output, run))
        return runs[-1]

    with ExitStack() as files:
        yield starter
        for run in runs:
            if run.process.poll() is None:
                run.process.kill()
                run.process.communicate()
    eventually("the ranks to end", lambda: not ranks_in(tmp_path))


def completed(text: str, folder: Path, **environment: str) -> Run:
    """A run that a user's shell started."""
    spec, output = folder / "job.yaml", folder / "out"
    spec.write_text(text)
    process = subprocess.Popen(
        [sys.executable, "-m", "trainhall.cli.main", "run", str(spec), "-o", str(output)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, **environment},
    )  # fmt: skip
    run = Run(output, process)
    code, printed = run.finish()
    assert code == 0, printed
    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of `SPEC` that is over, to be looked at."""
    return completed(SPEC, tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the synthetic task that nothing was done to."""
    folder = tmp_path_factory.mktemp("whole")
    spec, output = folder / "job.yaml", folder / "out"
    spec.write_text(synthetic(free_task("synthetic")))
    with ExitStack() as files:
        run = Run(output, forks.start(files, forks.COMMAND, ["run", str(spec), "-o", str(output)]))
        code, printed = run.finish()
    assert code == 0, printed
    return run


@pytest.fixture
def output(finished: Run, tmp_path: Path) -> Path:
    """The same, to be gone on with: in the folder `out` of the test's own."""
    return Path(shutil.copytree(finished.output, tmp_path / "out"))


def ranks_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            mine = process.environ().get("TRAINHALL_ATTEMPT_FOLDER", "").startswith(str(folder))
        except psutil.Error:
            continue
        if mine and process.pid != os.getpid():
            found.append(process)
    return found


def command_of(run: Run) -> Command:
    """What the shim was told last."""
    status = run.output / "attempts" / "1" / "status.json"
    return ShimStatus.model_validate_json(status.read_bytes()).command


def metrics(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def last_step(output: Path) -> int:
    path = output / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    whole = [line for line in lines if line.endswith("\n")]
    return int(json.loads(whole[-1])["step"]) if whole else 0


def test_run_starts_ranks_cold_beside_threads_of_a_library(tmp_path: Path) -> None:
    """A process with threads must not fork, and OpenBLAS starts its own at import."""
    run = completed(SPEC.replace("workers: 2", "workers: 1"), tmp_path, OPENBLAS_NUM_THREADS="4")
    assert last_step(run.output) == 30


def test_run_writes_metrics_checkpoints_and_a_result(finished: Run) -> None:
    run = finished
    lines = metrics(run.output)
    assert [line["step"] for line in lines] == list(range(1, 31))
    assert {"loss", "accuracy", "learning_rate", "gradient_norm", "step_seconds"} <= set(lines[0])
    assert [line["step"] for line in lines if "eval_accuracy" in line] == [10, 20, 30]
    result = json.loads((run.output / "result.json").read_text())
    assert set(result) == {
        "metrics", "steps", "seconds", "strategy", "world_size", "weights_sha256",
    }  # fmt: skip
    assert (result["steps"], result["strategy"], result["world_size"]) == (30, "ddp", 2)
    assert len(result["weights_sha256"]) == 64
    assert result["metrics"]["eval_accuracy"] == lines[-1]["eval_accuracy"]
    names = sorted(p.name for p in (run.output / "checkpoints").iterdir())
    assert names == ["step-00000020-a1-g1", "step-00000030-a1-g1"]


def test_best_checkpoint_is_kept_beside_the_newest(start: Start) -> None:
    best = "keep_best: 1, metric: learning_rate, metric_mode: max"
    run = start(SPEC, "out", "--set", f"checkpoint={{every_steps: 10, keep_latest: 1, {best}}}")
    code, printed = run.finish()
    assert code == 0, printed
    # The rate is always the same: the oldest of equally good ones counts.
    names = sorted(p.name for p in (run.output / "checkpoints").iterdir())
    assert names == ["step-00000010-a1-g1", "step-00000030-a1-g1"]


def test_equal_spec_gives_equal_weights(start: Start, finished: Run) -> None:
    run = start(SPEC, "out")
    assert run.finish()[0] == 0
    results = [json.loads((r.output / "result.json").read_text()) for r in (run, finished)]
    assert results[0]["weights_sha256"] == results[1]["weights_sha256"]


def test_folder_that_is_not_empty_is_refused(start: Start, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    code, printed = start(SPEC, "out").finish()
    assert code == 2
    assert "is not empty" in printed
    assert "--resume" in printed
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_run_resumes_identically(
    start: Start, gate: Gate, whole: Run, number: signal.Signals
) -> None:
    held = synthetic(gate.task("synthetic"))
    run = start(held, "out")
    run.wait_for_step(10)
    run.process.send_signal(number)
    code, printed = run.finish()
    assert code == 130, printed
    stopped = last_step(run.output)
    assert f"Stopped at step {stopped} (saved)" in printed
    assert 10 <= stopped < STEPS
    assert (run.output / "checkpoints" / f"step-{stopped:08d}-a1-g1").is_dir()
    assert not (run.output / "result.json").exists()
    gate.open()
    run = start(held, "out", "--resume")
    code, printed = run.finish()
    assert code == 0, printed
    assert f"Resuming from step {stopped}" in printed
    assert [(x["step"], x["loss"]) for x in metrics(run.output)] == [
        (x["step"], x["loss"]) for x in metrics(whole.output)
    ]
    ours, theirs = (
        json.loads((r.output / "result.json").read_text())["weights_sha256"] for r in (run, whole)
    )
    assert ours == theirs


def test_run_pauses_by_itself_and_resumes(start: Start, finished: Run) -> None:
    spec = SPEC.replace("steps: 30,", "steps: 30, pause_at: [7, 8],")
    for step in (7, 8):
        code, printed = start(spec, "out", *(["--resume"] if step == 8 else [])).finish()
        assert code == 101, printed
        assert (
            f"Paused at step {step}, as training.pause_at says; continue with --resume." in printed
        )
    run = start(spec, "out", "--resume")
    code, printed = run.finish()
    assert code == 0, printed
    assert [(x["step"], x["loss"]) for x in metrics(run.output)] == [
        (x["step"], x["loss"]) for x in metrics(finished.output)
    ]


def test_second_interrupt_ends_at_once(start: Start, tmp_path: Path) -> None:
    # A step of a minute: no agreement is near.
    run = start(synthetic({"name": "synthetic", "params": {"step_seconds": 60}}), "out")
    eventually("two ranks", lambda: len(ranks_in(tmp_path)) >= 2)
    run.process.send_signal(signal.SIGINT)
    # Two signals that are both still to be delivered would be one.
    eventually("the first to be heard", lambda: command_of(run) == Command.PAUSE)
    run.process.send_signal(signal.SIGINT)
    eventually("the second to be heard", lambda: command_of(run) == Command.STOP)
    code, printed = run.finish()
    assert code == 130, printed
    eventually("the ranks to end", lambda: not ranks_in(tmp_path))


def test_killed_run_leaves_no_process_and_resumes(start: Start, gate: Gate, tmp_path: Path) -> None:
    task = gate.task("synthetic")
    run = start(synthetic(task, every_steps=30), "out")
    run.wait_for_step(40)
    run.process.kill()
    run.process.communicate()
    eventually("the ranks to end", lambda: not ranks_in(tmp_path))
    gate.open()
    run = start(synthetic(task), "out", "--resume")
    code, printed = run.finish()
    assert code == 0, printed
    assert "Resuming from step" in printed
    assert [line["step"] for line in metrics(run.output)] == list(range(1, STEPS + 1))
    captured = (run.output / "gradients.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in captured] == list(range(10, STEPS + 1, 10))


def test_failed_save_is_reported(start: Start, gate: Gate, tmp_path: Path) -> None:
    run = start(synthetic(gate.task("synthetic"), every_steps=60), "out")
    run.wait_for_step(5)
    # Its name is taken, and none is ever overwritten.
    (run.output / "checkpoints" / "step-00000060-a1-g1").mkdir(parents=True)
    gate.open()
    code, printed = run.finish()
    assert code == 0, printed
    assert "Note: the checkpoint of step 60 was not saved: " in printed


def test_result_of_an_unreadable_run_does_not_count(tmp_path: Path) -> None:
    """It may be of another version."""
    run = LocalRun(validate_spec(yaml.safe_load(SPEC)), tmp_path, resume=True)
    (tmp_path / "result.json").touch()
    (tmp_path / "attempts" / "1").mkdir(parents=True)
    assert not run._is_complete(1)
    (tmp_path / "attempts" / "1" / "launch.json").write_text("{}")
    assert not run._is_complete(1)


def test_complete_run_is_not_repeated(start: Start, output: Path) -> None:
    before = (output / "result.json").read_bytes()
    code, printed = start(SPEC, "out", "--resume").finish()
    assert code == 0
    assert "already complete" in printed
    assert (output / "result.json").read_bytes() == before
    code, printed = start(SPEC, "out", "--resume", "--set", "training.steps=40").finish()
    assert code == 0, printed
    assert [line["step"] for line in metrics(output)] == list(range(1, 41))


def test_damaged_checkpoint_is_passed_over(start: Start, output: Path) -> None:
    newest = output / "checkpoints" / "step-00000030-a1-g1"
    tensors = next(newest.glob("**/*.safetensors"))
    data = bytearray(tensors.read_bytes())
    data[len(data) // 2] ^= 1
    tensors.write_bytes(data)
    code, printed = start(SPEC, "out", "--resume", "--set", "training.steps=40").finish()
    assert code == 0, printed
    assert "Resuming from step 20" in printed
    assert "step-00000030-a1-g1" in printed


def test_dead_rank_ends_the_run(start: Start, gate: Gate, tmp_path: Path) -> None:
    run = start(synthetic(gate.task("synthetic")), "out")
    run.wait_for_step(5)
    victim = next(p for p in ranks_in(tmp_path) if p.environ().get("RANK") == "1")
    victim.kill()
    code, printed = run.finish()
    assert code == 1
    assert "trainhall: rank 1 was ended by SIGKILL" in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x", "task"),
        ("name: x\nscript: {path: train.py}", "torchrun"),
        (SPEC.replace("device: cpu", "device: tpu"), "resources.device"),
        (SPEC.replace("steps: 30", "stepps: 30"), "did you mean 'steps'"),
    ],
)
def test_wrong_spec_creates_nothing(start: Start, tmp_path: Path, text: str, message: str) -> None:
    code, said = start(text, "out").finish()
    assert code == 2
    assert message in said
    assert not (tmp_path / "out").exists()


def test_auto_strategy_is_planned_once(start: Start, tmp_path: Path) -> None:
    spec = SPEC + "parallelism: {strategy: auto}\n"
    output = tmp_path / "out"
    code, printed = start(spec, "out").finish()
    assert code == 0, printed
    assert "Chosen: " in printed
    assert "predicted: " in printed
    chosen = json.loads((output / "plan.json").read_text())["chosen"]
    result = json.loads((output / "result.json").read_text())
    assert result["strategy"] == chosen["parallelism"]["strategy"]
    code, printed = start(spec, "out", "--resume").finish()
    assert code == 0, printed
    assert f"Using the plan in {output}/plan.json: {chosen['summary']}." in printed
