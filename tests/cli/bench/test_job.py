"""`trainhall bench FILE`: the rows of its combinations, in each format and after Ctrl-C."""

import csv
import io
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from support.forking import forks
from support.waiting import PATIENCE
from typer.main import get_command

from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.bench import cells, power
from trainhall.cli.bench.power import PowerMeter
from trainhall.cli.main import app
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.frames import MetricTable, encode_frame, encode_tables
from trainhall.training.link.launch import RankSlot
from trainhall.training.spec import JobSpec
from trainhall.training.spec.plan import ChosenPlan, PlanPrediction

SPEC = {
    "name": "speed",
    "task": {"name": "synthetic", "params": {"features": 8, "hidden": [8]}},
    "resources": {"device": "cpu"},
    "training": {"steps": 20, "global_batch_size": 64},
}
Bench = Callable[..., tuple[int, str]]


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(SPEC))

    def run(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        command = ["bench", str(file), *arguments]
        code = get_command(app).main(command, prog_name="trainhall", standalone_mode=False)
        return code or 0, capsys.readouterr().out

    return run


class Training:
    """Stands in for the processes of a run: one with two workers is twice as fast."""

    stopped_after = 1000
    begun: list[JobSpec]
    measured: ClassVar = {
        "peak_memory_bytes": 2048, "step_seconds": 0.25, "steps": 20, "communication_bytes": 4096,
    }  # fmt: skip

    def __init__(self, spec: JobSpec, output: Path, **_: Any) -> None:
        self._spec, self._output = spec, output

    def run(self) -> int:
        Training.begun.append(self._spec)
        if len(Training.begun) > Training.stopped_after:
            return 130
        workers = self._spec.resources.workers
        if workers == 4:
            raise CliError("rank 3 was killed")
        seconds = 0.5 / workers * (1 + len(Training.begun) / 1000)
        lines = [
            {
                "step": step,
                "step_seconds": 9.0 if step <= 10 else seconds,
                "samples_per_second": 64 / (9.0 if step <= 10 else seconds),
                "communication_seconds": seconds / 4,
                "communication_hidden_seconds": seconds / 8 if workers > 1 else None,
                "peak_memory_bytes": 1024.0,
                "loss": None if step == 20 else 0.5,
            }
            for step in range(1, 21)
        ]
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (self._output / "metrics.jsonl").write_text(text)
        (self._output / "result.json").write_text(json.dumps({"steps": 20, "seconds": 6.5}))
        steps = list(range(1, 21))
        times = [1000.0 + step for step in steps]
        table = MetricTable(None, steps, times, {"loss": [0.5] * 20})
        file = AttemptFolder(self._output / "attempts" / "1").metrics(0)
        file.parent.mkdir(parents=True)
        file.write_bytes(encode_frame(1, encode_tables([table])))
        return 0


def predict(spec: JobSpec) -> ChosenPlan:
    """Stands in for the planner, which cannot predict one worker."""
    if spec.resources.workers == 1:
        raise CliError("the model cannot be planned")
    return ChosenPlan(
        parallelism={}, summary="ddp (data 2)", reason="", assumed="", device="cpu",
        prediction=PlanPrediction(peak_memory_bytes=2048, memory={}, step_seconds=0.2),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _training(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    Training.stopped_after, Training.begun = 1000, []
    if "acceptance" not in request.keywords:
        monkeypatch.setattr(cells, "LocalRun", Training)
        monkeypatch.setattr(cells, "predict", predict)


def test_rows_have_figures_ratios_and_reasons(bench: Bench) -> None:
    code, printed = bench("--workers", "1,2,3,4", "-o", "json")
    one, two, three, four = json.loads(printed)["rows"]
    assert code == 0
    assert len(Training.begun) == 9  # three workers cannot share the batch
    assert {job.training.seed for job in Training.begun} == {0, 1, 2}
    assert one["is_baseline"]
    # The first ten steps are the warm-up.
    assert one["step_seconds"] == pytest.approx(0.5, rel=0.02)
    assert one["communication_share"] == pytest.approx(0.25)
    assert (one["latency_seconds"], one["bandwidth"]) == (None, None)
    assert two["latency_seconds"] == pytest.approx(0.25 * 3 / 8, rel=0.02)
    assert (one["strategy"], one["precision"], one["compression"]) == ("ddp", "fp32", "none")
    assert (one["final_loss"], one["steps"], one["runs"]) == (None, 20, 3)
    assert one["spread"]["samples_per_second"][0] < one["samples_per_second"]
    assert (two["ratio"], two["verdict"]) == (pytest.approx(2, rel=0.02), "better")
    assert three["state"] == "failed"
    assert three["reason"].startswith("cannot run: training.global_batch_size: ")
    assert (four["state"], four["reason"]) == ("failed", "rank 3 was killed")
    assert one["predicted"] is None
    assert (two["predicted"]["plan"], two["predicted"]["step_seconds"]) == ("ddp (data 2)", 0.2)


def test_rows_are_printed_as_table_and_csv(bench: Bench) -> None:
    _, printed = bench("--workers", "2", "--batch-sizes", "64,128", "--repeats", "1")
    assert printed.startswith("BATCH  SAMPLES/S")
    assert "All rows: strategy ddp, workers 2" in printed
    _, _, _, _, _, title, *table = printed.splitlines()
    assert title == "Communication"
    head, *lines = (line.split() for line in table)
    assert head == ["BATCH", "SENT", "PER", "STEP", "BANDWIDTH", "LATENCY", "SPEED-UP"]
    assert [line[1:3] for line in lines] == [["4.0", "KiB"]] * 2
    _, printed = bench("--precisions", "fp32,bf16", "--repeats", "2", "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [row["precision"] for row in rows] == ["fp32", "bf16"]
    assert float(rows[0]["samples_per_second_low"]) < float(rows[0]["samples_per_second_high"])
    assert (rows[0]["energy_per_sample"], rows[0]["state"]) == ("", "completed")


def test_baseline_is_the_one_that_is_named(bench: Bench) -> None:
    axes = ("--algorithms", "native,ring", "--bucket-sizes", "1,25", "--workers", "2")
    options = (*axes, "--repeats", "1", "-o", "json")
    _, printed = bench(*options, "--baseline", "algorithm=ring,bucket_mb=25")
    (row,) = [row for row in json.loads(printed)["rows"] if row["is_baseline"]]
    sync = "parallelism.gradient_sync."
    assert (row["values"][f"{sync}algorithm"], row["values"][f"{sync}bucket_mb"]) == ("ring", 25)
    for baseline, message in (
        ("precision=fp32", "'precision=fp32' names no field that is given; known: strategy"),
        ("bucket_mb=2", "'bucket_mb=2' has none of the values 1, 25"),
        ("bucket_mb=1", "give parallelism.gradient_sync.algorithm as well"),
    ):
        with pytest.raises(UsageError, match=message):
            bench(*options, "--baseline", baseline)


def test_scaling_study_has_curves(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "physical_cores", lambda: 1)
    study = ("--workers", "1,2", "--scaling", "strong,weak", "--repeats", "1")
    strong, weak = json.loads(bench(*study, "-o", "json")[1])["scaling"]
    assert [(curve["scaling"], curve["values"]) for curve in (strong, weak)] == [
        ("strong", {"parallelism.strategy": "ddp"}), ("weak", {"parallelism.strategy": "ddp"}),
    ]  # fmt: skip
    assert [point["shares_cores"] for point in strong["points"]] == [False, True]
    assert strong["points"][1]["speedup"] == pytest.approx(2, rel=0.02)
    assert [point["batch_size"] for point in weak["points"]] == [64, 128]
    _, printed = bench(*study)
    assert "measured, shared cores" in printed
    assert "- Strong scaling, strategy ddp: nothing is predicted" in printed


def test_energy_of_a_sample_follows_from_the_power(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [RankSlot(rank=i, local_rank=i, device_kind="cuda", device_index=i) for i in range(2)]
    asked: list[tuple[float, float]] = []

    def watts(meter: PowerMeter, since: float, until: float) -> float | None:
        asked.append((since, until))
        return 100.0 * len(meter.gpus) if len(asked) == 1 else None

    monkeypatch.setattr(cells, "places", lambda wanted: gpus[: wanted.workers])
    monkeypatch.setattr(PowerMeter, "watts", watts)
    _, printed = bench("--workers", "2", "--repeats", "1", "-o", "json")
    (row,) = json.loads(printed)["rows"]
    assert row["energy_per_sample"] == pytest.approx(200 / row["samples_per_second"])
    assert asked == [(1011.0, 1020.0)]
    assert "J/SAMPLE" not in bench("--workers", "2", "--repeats", "1")[1]  # no power is reported


def test_power_meter_adds_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    read = threading.Semaphore(0)

    def gpu_power(index: int) -> float | None:
        if index == 1:
            read.release()
        return {0: 200.0, 1: 100.0}.get(index)

    monkeypatch.setattr(power, "gpu_power", gpu_power)
    for gpus, watts in (([0, 1], 300.0), ([0, 1, 2], None), ([], None)):
        since = time.time()
        with PowerMeter(gpus) as meter:
            for _ in gpus:
                assert read.acquire(timeout=PATIENCE)
        assert meter.watts(since, time.time()) == watts
        assert meter.watts(since - 2, since - 1) is None


def test_interrupted_benchmark_prints_what_there_is(bench: Bench) -> None:
    Training.stopped_after = 1
    code, printed = bench("--workers", "1,2", "--repeats", "1", "--seed", "1", "-o", "json")
    rows = json.loads(printed)["rows"]
    assert code == 130
    assert sorted(row["state"] for row in rows) == ["cancelled", "completed"]
    Training.stopped_after, Training.begun = 0, []
    code, printed = bench("--workers", "1,2", "--repeats", "1", "-o", "json")
    states = sorted(row["state"] for row in json.loads(printed)["rows"])
    assert (code, states) == (130, ["cancelled", "pending"])


def test_benchmark_without_a_completed_run_fails(bench: Bench) -> None:
    code, printed = bench("--workers", "4", "--repeats", "1")
    assert code == 1
    assert "rank 3 was killed" in printed
    with pytest.raises(UsageError, match="global_batch_size"):
        bench("--workers", "3")
    with pytest.raises(UsageError, match="--workers"):
        bench("--workers", "two")
    with pytest.raises(UsageError, match="given twice"):
        bench("--strategies", "ddp,ddp")


@pytest.mark.acceptance
def test_benchmark_trains_in_processes(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(SPEC))
    options = ["--repeats", "1", "--warmup-steps", "2", "-o", "json"]
    done = forks.run(forks.COMMAND, ["bench", str(file), *options])
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["state"], row["steps"]) == ("completed", 20)
    assert row["samples_per_second"] > 0
    assert row["step_seconds"] <= row["step_seconds_p95"]
    assert 0 <= row["communication_share"] <= 1
    assert row["predicted"]["plan"] == "ddp"
    assert row["predicted"]["measured_memory_bytes"] is None  # of a CPU: that of the process
