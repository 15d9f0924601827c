"""One training on this host: an agent's shim and ranks, without an agent.

    DIR/metrics.jsonl      see `metrics_file`
    DIR/gradients.jsonl    a `GradientRecord` a line, if the spec captures any
    DIR/checkpoints/       one folder per checkpoint
    DIR/result.json        once it completed
    DIR/plan.json          for strategy `auto`: see `local_plan`
    DIR/attempts/N/        files of attempt N: its output, metric frames and events

Everything that ranks report is in the files of the attempt, so a run that was killed outright is
picked up from them by `--resume`.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from trainhall.cli.base.errors import UNFINISHED, CliError
from trainhall.cli.base.output import notice, number, size
from trainhall.cli.jobs.progress import Progress
from trainhall.cli.local.attempt_files import EventTail, MetricTail
from trainhall.cli.local.metrics_file import ChainFile, MetricsFile, append_line, cut_lines_after
from trainhall.cluster.agent.devices import visible_gpus
from trainhall.cluster.agent.launch.warm_client import SHIM_MODULE
from trainhall.cluster.agent.os_support import linux
from trainhall.cluster.agent.shim.folder_ipc import log_path, send_command
from trainhall.cluster.agent.shim.supervisor import read_launch
from trainhall.cluster.durations import format_duration
from trainhall.cluster.jobs.main_metric import main_metric
from trainhall.training.checkpoint.format.names import scan
from trainhall.training.checkpoint.format.removal import retire
from trainhall.training.common.units import brief
from trainhall.training.link.events import RankEvent
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import CheckpointPlan, Command, Launch, RankSlot
from trainhall.training.link.secrets.attempt_secrets import write_secrets
from trainhall.training.link.status import Outcome, ShimStatus
from trainhall.training.spec import Device, JobSpec, ResourcesSpec
from trainhall.training.spec.plan import PlanPrediction

JOB_ID = "local"
FAILED = 1
STOPPED = 130
WATCH_SECONDS = 0.1
RESUME_CANDIDATES = 8
SHOWN_LINES = 20


class LocalRun:
    """Trains a spec in a folder, from nothing or from what is there."""

    def __init__(
        self, spec: JobSpec, output: Path, *, resume: bool, prediction: PlanPrediction | None = None
    ) -> None:
        """Prepare a run; `prediction`: of a spec whose strategy was planned."""
        self._spec = spec
        self._document = spec.model_dump(mode="json")
        self._prediction = prediction
        self._output = output
        self._checkpoints = output / "checkpoints"
        self._result = output / "result.json"
        self._gradients = output / "gradients.jsonl"
        self._attempts = output / "attempts"
        self._resume = resume
        self._total_steps: int | None = None
        self._seconds = 0.0
        self._completed: dict[str, Any] | None = None
        self._signals = 0
        self._sent = Command.RUN

    @property
    def measured(self) -> Any:
        """Return the measurements of the completed run; None: it took too few steps."""
        return self._completed and self._completed.get("measured")

    def run(self) -> int:
        """Train to the end, a failure or Ctrl-C; the exit code."""
        last = self._last_attempt()
        if self._is_complete(last):
            notice(f"{self._output} is already complete; see result.json")
            return 0
        secrets = own_secrets(self._spec)
        self._result.unlink(missing_ok=True)
        chain = self._spec.training.reproducible
        metrics = MetricsFile(
            self._output / "metrics.jsonl",
            ChainFile(self._output / "chain.jsonl") if chain else None,
        )
        try:
            if last:
                self._recover(last, metrics)
            folder = AttemptFolder(self._attempts / str(last + 1))
            folder.path.mkdir(parents=True)
            launch = self._launch(last + 1)
            replace_json(folder.launch, launch)
            if secrets:
                write_secrets(folder.secrets, secrets)
            outcome, status = self._train(folder, launch, metrics)
        finally:
            metrics.close()
        return self._finish(outcome, status, metrics)

    def _last_attempt(self) -> int:
        if not self._attempts.is_dir():
            return 0
        numbers = [int(p.name) for p in self._attempts.iterdir() if p.name.isdigit()]
        return max(numbers, default=0)

    def _is_complete(self, last: int) -> bool:
        """Return whether the result is there, and is this spec's."""
        if not self._result.exists() or not last:
            return False
        launch = read_launch(AttemptFolder(self._attempts / str(last)))
        return isinstance(launch, Launch) and launch.spec == self._spec

    def _recover(self, last: int, metrics: MetricsFile) -> None:
        """Take from earlier attempts what a killed run did not: their metrics and their time."""
        for attempt in range(1, last + 1):
            folder = AttemptFolder(self._attempts / str(attempt))
            events = EventTail(folder.events(0)).read()
            started = next((e for e in events if e.kind == "started"), None)
            if started is None:
                continue
            self._seconds += events[-1].time - started.time
            if attempt == last:
                if "resumed_from" in started.data:
                    self._cut_after(started.data["resumed_from"] or 0, metrics)
                MetricTail(folder.metrics(0)).feed(metrics)
                for event in events:
                    if event.kind == "gradients":
                        append_line(self._gradients, event.data)

    def _cut_after(self, step: int, metrics: MetricsFile) -> None:
        metrics.cut_after(step)
        cut_lines_after(self._gradients, step)

    def _launch(self, attempt: int) -> Launch:
        saved = scan(self._checkpoints) if self._resume else []
        if self._resume and not saved:
            notice("There is no checkpoint yet: training starts at the first step.")
        return Launch(
            job_id=JOB_ID,
            attempt=attempt,
            generation=1,
            spec=self._spec,
            world_size=self._spec.resources.workers,
            node_rank=0,
            num_nodes=1,
            ranks=places(self._spec.resources),
            code=self._spec.code_folder,
            prediction=self._prediction,
            pauses_after=saved[0].name.step if saved else 0,
            checkpoint=CheckpointPlan(
                folder=str(self._checkpoints),
                upload=False,
                resume=[found.path.name for found in saved[:RESUME_CANDIDATES]],
            ),
        )

    def _train(
        self, folder: AttemptFolder, launch: Launch, metrics: MetricsFile
    ) -> tuple[Outcome, ShimStatus | None]:
        """Run one attempt to its end."""
        handlers = {n: signal.signal(n, self._on_signal) for n in (signal.SIGINT, signal.SIGTERM)}
        shim = execute_shim(folder)
        try:
            with Progress() as progress:
                self._watch(shim, folder, launch, metrics, progress)
        finally:
            if shim.poll() is None:
                shim.kill()
            shim.wait()
            if shim.stdin is not None:
                shim.stdin.close()
            for number_, handler in handlers.items():
                signal.signal(number_, handler)
        status = read_status(folder)
        if status is None or status.outcome is None:
            return Outcome.FAILED, status
        return status.outcome, status

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self._signals += 1

    def _watch(
        self,
        shim: "subprocess.Popen[bytes]",
        folder: AttemptFolder,
        launch: Launch,
        metrics: MetricsFile,
        progress: Progress,
    ) -> None:
        """Read the ranks' reports, and pass on the user's requests, until the shim has ended."""
        events = EventTail(folder.events(0))
        tail = MetricTail(folder.metrics(0))
        began = False
        while True:
            ended = shim.poll() is not None
            self._command(shim, folder)
            for event in events.read():
                began = began or event.kind == "started"
                self._take(event, launch, metrics)
            # Which steps are taken again is known once rank 0 said where it starts.
            if began:
                tail.feed(metrics)
            progress.show(self._progress(began, metrics))
            if ended:
                return
            time.sleep(WATCH_SECONDS)

    def _command(self, shim: "subprocess.Popen[bytes]", folder: AttemptFolder) -> None:
        """First signal: stop at an agreed step and save. Second: end now. Third: kill."""
        wanted = (Command.RUN, Command.PAUSE, Command.STOP)[min(self._signals, 2)]
        if wanted > self._sent and send_command(folder, wanted):
            notice("Stopping after a checkpoint; Ctrl-C again stops at once."
                if wanted is Command.PAUSE else "Stopping at once.")  # fmt: skip
            self._sent = wanted
        if self._signals >= 3:
            shim.kill()

    def _take(self, event: RankEvent, launch: Launch, metrics: MetricsFile) -> None:
        data = event.data
        match event.kind:
            case "started":
                self._total_steps = data["total_steps"]
                if "resumed_from" in data:
                    self._cut_after(data["resumed_from"] or 0, metrics)
                if data.get("resumed_from"):
                    notice(f"Resuming from step {data['resumed_from']}.")
                if data.get("note"):
                    notice(f"Note: {data['note']}")
            case "checkpoint":
                retire(self._checkpoints, launch.spec.checkpoint)
            case "gradients":
                append_line(self._gradients, data)
            case "note" | "not_saved":
                notice(f"Note: {data['message']}")
            case "network":
                notice(f"Network: {data['message']}.")
            case "completed":
                self._completed = data

    def _progress(self, began: bool, metrics: MetricsFile) -> dict[str, Any]:
        states = ("running" if began else "starting", "stopping", "stopping")
        main = main_metric(self._document, metrics.last)
        return {
            "name": self._spec.name,
            "state": states[self._sent],
            "reason": "",
            "step": metrics.step,
            "total_steps": self._total_steps,
            "metrics": metrics.last,
            "main_metric": asdict(main) if main is not None else None,
        }

    def _finish(self, outcome: Outcome, status: ShimStatus | None, metrics: MetricsFile) -> int:
        """Say how it ended, and write the result of what completed."""
        if outcome is Outcome.COMPLETED and self._completed is not None:
            self._write_result(self._completed)
            return 0
        if outcome is Outcome.PAUSED and not self._signals:
            step = f"step {metrics.step}"
            notice(f"Paused at {step}, as training.pause_at says; continue with --resume.")
            return UNFINISHED
        if outcome in (Outcome.PAUSED, Outcome.STOPPED) and self._signals:
            saved = "saved" if outcome is Outcome.PAUSED else "nothing was saved"
            notice(f"Stopped at step {metrics.step} ({saved}); continue with --resume.")
            return STOPPED
        failure = status.failure if status is not None else None
        if failure is None:
            raise CliError("the training ended without an error message", self._shim_lines())
        lines = failure.log_tail.splitlines()[-SHOWN_LINES:]
        raise CliError(failure.message, lines or None)

    def _write_result(self, completed: dict[str, Any]) -> None:
        result: dict[str, Any] = {
            "metrics": completed["metrics"],
            "steps": completed["steps"],
            "seconds": round(self._seconds + completed["seconds"], 6),
            "strategy": self._spec.parallelism.strategy,
            "world_size": self._spec.resources.workers,
            "weights_sha256": completed["weights_sha256"],
            **{key: completed[key] for key in ("network", "chain") if key in completed},
        }
        write_json(self._result, result)
        text = f"Completed {result['steps']} steps in {format_duration(result['seconds'])}"
        accuracy = result["metrics"].get("eval_accuracy")
        notice(text + (f", validation accuracy {number(accuracy)}" if accuracy is not None else ""))
        if self._prediction is not None and completed.get("measured"):
            is_on_gpu = places(self._spec.resources)[0].device_kind == "cuda"
            notice(
                predicted_and_measured(
                    self._prediction, completed["measured"], has_memory=is_on_gpu
                )
            )

    def _shim_lines(self) -> list[str]:
        folder = AttemptFolder(self._attempts / str(self._last_attempt()))
        with contextlib.suppress(OSError):
            return log_path(folder).read_text(errors="replace").splitlines()[-SHOWN_LINES:]
        return []


def places(wanted: ResourcesSpec) -> list[RankSlot]:
    """Return a device for each worker: GPUs as the spec asks, or ranks on the CPU.

    Raises:
        CliError: this host has too few GPUs.
    """
    workers = wanted.workers
    gpus = [] if wanted.device is Device.CPU else [gpu.index for gpu in visible_gpus()]
    if wanted.device is Device.CUDA and len(gpus) < workers:
        raise CliError(
            f"resources: {workers} workers need {workers} GPUs, but this host has "
            f"{len(gpus)}; lower resources.workers, or set resources.device to cpu"
        )
    kind: Literal["cpu", "cuda"] = "cuda" if gpus and len(gpus) >= workers else "cpu"
    devices = gpus[:workers] if kind == "cuda" else range(workers)
    return [
        RankSlot(rank=rank, local_rank=rank, device_kind=kind, device_index=index)
        for rank, index in enumerate(devices)
    ]


def predicted_and_measured(
    prediction: PlanPrediction, measured: dict[str, Any], *, has_memory: bool
) -> str:
    """Return a comparison of a plan's prediction with the run.

    Args:
        has_memory: the memory of tensors was measured, not on a CPU the growth of the process.
    """
    step = (
        f"A step took {brief(measured['step_seconds'])} (predicted: "
        f"{brief(prediction.step_seconds)})"
    )
    if not has_memory:
        return f"{step}."
    return (
        f"{step} and {size(measured['peak_memory_bytes'])} of memory (predicted: "
        f"{size(prediction.peak_memory_bytes)})."
    )


def execute_shim(folder: AttemptFolder) -> "subprocess.Popen[bytes]":
    """Start a shim that imports torch and ends with this process."""
    with log_path(folder).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", SHIM_MODULE, str(folder.path), "--preload", "--attached"],
            stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT,
            env=os.environ | linux.environment_padding(),
        )  # fmt: skip


def own_secrets(spec: JobSpec) -> Mapping[str, str]:
    """Return the secrets of a spec from this process's environment.

    Raises:
        CliError: some are not there.
    """
    missing = [name for name in spec.secrets if not os.environ.get(name)]
    if missing:
        names = ", ".join(missing)
        raise CliError(
            f"secrets: {names} is not set in the environment, where a run on this host takes "
            "secrets from"
        )
    return {name: os.environ[name] for name in spec.secrets}


def read_status(folder: AttemptFolder) -> ShimStatus | None:
    """Return the shim's last status; None when there is none."""
    try:
        return ShimStatus.model_validate_json(folder.status.read_bytes())
    except FileNotFoundError:
        return None


def write_json(path: Path, data: Any) -> None:
    """Replace a file at once: a reader finds the old one or the whole new one."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)
