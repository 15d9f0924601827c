"""The work of a built-in task: steps, evaluations and checkpoints, as the training loop does."""

import hashlib
import math
import zlib
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from trainhall.cluster.simulator.ranks import Fate, Group, Rank
from trainhall.cluster.simulator.spool import Files
from trainhall.cluster.simulator.workload import output, work
from trainhall.cluster.simulator.workload.curves import (
    PHASES,
    Block,
    Curves,
    Floats,
    model_of,
    total_steps,
)
from trainhall.cluster.simulator.workload.gpu import Load
from trainhall.cluster.simulator.workload.gradients import Gradients
from trainhall.cluster.simulator.workload.saved import save
from trainhall.cluster.simulator.workload.work import ShownWork
from trainhall.training.checkpoint.format.names import CheckpointName
from trainhall.training.link.frames import MetricTable
from trainhall.training.link.launch import Command

PROGRESS_SECONDS = 10.0
"""Training between two lines of progress, at least."""
_LINES_AT_ONCE = 12
"""Most lines of progress, when a long time passes at once."""
_OPTIMIZER_BYTES = 12
"""Bytes of a parameter in a checkpoint: the weight and two moments."""
_SENT = {"fp16": 0.5, "bf16": 0.5, "topk": 0.02, "powersgd": 0.02}
"""Share of the gradients that is sent, by compression."""


class Training(ShownWork):
    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self.launch = group.launch
        self.spec = group.launch.spec
        self.model = model_of(self.spec)
        self._total = total_steps(self.spec, self.model)
        self.step = self._first = group.step
        self.last: dict[str, float] = {}
        """The newest value of every job-wide series."""
        self.curves = Curves(
            self.spec,
            self.model,
            workers=self.launch.world_size,
            total=self._total,
            first=self.step,
            seed=group.chance.getrandbits(62),
        )
        self._memory = self.curves.memory
        # A draw of its own: asking must change nothing else.
        self._gradients = Gradients(
            self.spec,
            self.model.parameters,
            self.launch.world_size,
            zlib.crc32(self.spec.name.encode()),
        )
        self._answered = 0
        """The newest request for gradients that was answered."""
        self._blocks: deque[Block] = deque()
        self._at = 0
        """Position within the first block: the next step to finish."""
        now = group.now()
        self._begun_at = self._finished_at = self._saved_at = self._reported_at = now
        self._saved_step = self.step

    @property
    def total(self) -> int:
        return self._total

    def start(self, data: dict[str, Any]) -> None:
        self.report_packages()
        super().start({**data, "samples": self.model.samples})
        self.write(
            output.started(
                self.spec.name,
                world_size=self.launch.world_size,
                samples=self.model.samples,
                parameters=self.model.parameters,
                total=self.total,
                step=self.step,
            )
        )
        for number, rank in self.group.ranks.items():
            if number == rank.launch.ranks[0].rank:
                text = output.warning(number, rank.shim.host_name, self.group.chance)
                self.write(text, number, "stderr")

    # -- time ------------------------------------------------------------------------------------

    def wait(self) -> float:
        due = self._finish_of_next()
        if self.group.asked is Command.RUN and self._gradients_asked <= self._answered:
            mean = float(self._block().durations.mean())
            due += (self._next_save_or_end() - self.step - 1) * mean
        return max(0.0, due - self.group.now())

    @property
    def _gradients_asked(self) -> int:
        """Return the newest request for gradients that any host was given."""
        return max(rank.shim.gradients for rank in self.group.ranks.values())

    def _end(self) -> int:
        """Return the step at which it ends, well or not."""
        if self.fate is None:
            return self.total
        return min(self.total, self.step + int(self.fate[0].steps_left))

    def take(self, *, is_due: bool) -> int:
        now, before = self.group.now() + work.CLOCK_SECONDS, self.step
        until = self._next_save_or_end()
        if self.group.asked is not Command.RUN:
            until = before + 1
        failing = self._end() if self.fate is not None else None
        while self.step < until and self._finish_of_next() <= now:
            self._write(self._take(now, until), failing)
            self._capture()
            last = self.step == self.total
            evaluates = last or _divides(self.spec.training.evaluate_every_steps, self.step)
            if evaluates and self.step != failing:
                self._evaluate()
        return self.step - before

    def _next_save_or_end(self) -> int:
        every, seconds = self.spec.checkpoint.every_steps, self.spec.checkpoint.every_seconds
        pauses = (at for at in self.spec.training.pause_at if at > self.step)
        step = min(self._end(), next(pauses, self.total))
        if every is not None:
            step = min(step, _next_multiple(every, self.step))
        if seconds is not None:
            left = seconds - (self._finished_at - self._saved_at)
            steps = math.ceil(left / float(self._block().durations.mean()))
            step = min(step, self.step + max(1, steps))
        return step

    def _landmark(self, until: int) -> int:
        """Return the next step at which something is due beside metrics."""
        if self._gradients_asked > self._answered:
            return self.step + 1
        training = self.spec.training
        rhythms = (training.evaluate_every_steps, training.capture_gradients_every_steps)
        multiples = [_next_multiple(every, self.step) for every in rhythms if every is not None]
        return min([until, *multiples])

    def _block(self) -> Block:
        if not self._blocks:
            self._blocks.append(self.curves.block())
        return self._blocks[0]

    def _finish_of_next(self) -> float:
        return self._finished_at + float(self._block().durations[self._at])

    def _take(self, now: float, until: int) -> Block:
        """Take the steps of the present block that end by `now`, up to the next landmark."""
        block = self._block()
        most = self._landmark(until) - self.step
        ends = self._finished_at + np.cumsum(block.durations[self._at : self._at + most])
        count = max(1, int(np.searchsorted(ends, now, side="right")))
        part = slice(self._at, self._at + count)
        self._at += count
        if self._at == len(block.steps):
            self._blocks.popleft()
            self._at = 0
        return Block(
            block.steps[part],
            {name: values[part] for name, values in block.job.items()},
            block.seconds[part],
            block.durations[part],
        )

    # -- what is written -------------------------------------------------------------------------

    def _write(self, block: Block, failing: int | None) -> None:
        """Write these steps' metric frames: each rank's timings, and from rank 0 the job's."""
        times = self._finished_at + np.cumsum(block.durations)
        steps, stamps = block.steps.tolist(), times.tolist()
        if self.fate is not None and self.fate[1].kind == "diverges":
            for name in ("loss", "gradient_norm"):
                block.job[name][block.steps == failing] = math.nan
        job = self._job_columns(block)
        for rank in sorted(self.group.ranks):
            own = self._timings(block.seconds[:, rank])
            own["peak_memory_bytes"] = [float(self._memory[rank])] * len(steps)
            tables = [MetricTable(rank, steps, stamps, own)]
            if rank == 0:
                tables.append(MetricTable(None, steps, stamps, job))
            self.group.ranks[rank].spool.metrics(tables)
        self.last |= {name: values[-1] for name, values in job.items()}
        self.step = steps[-1]
        self._report_progress(steps, stamps, job)
        self._finished_at = stamps[-1]

    def _job_columns(self, block: Block) -> dict[str, Sequence[float]]:
        job: dict[str, Sequence[float]] = {n: v.tolist() for n, v in block.job.items()}
        rates, norms = job.pop("learning_rate"), job.pop("gradient_norm")
        timings = self._timings(block.seconds.mean(axis=1))
        batch = self.spec.training.global_batch_size
        return self._bubble(timings) | {
            **job,
            **timings,
            "learning_rate": rates,
            "gradient_norm": norms,
            "samples_per_second": [batch / seconds for seconds in timings["step_seconds"]],
            "peak_memory_bytes": [float(self._memory.max())] * len(block.steps),
        }

    def _timings(self, seconds: Floats) -> dict[str, Sequence[float]]:
        """Return columns of `[steps, phases]` seconds."""
        phases = {f"{name}_seconds": seconds[:, i] for i, name in enumerate(PHASES)}
        columns = {"step_seconds": seconds.sum(axis=1), **phases}
        if self._averages:
            columns["communication_hidden_seconds"] = phases["communication_seconds"] / 2
        return {name: values.tolist() for name, values in columns.items()}

    @property
    def _averages(self) -> bool:
        """Return whether the ranks average gradients while they compute others."""
        return self.spec.strategy == "ddp" and len(self.group.ranks) > 1

    def _bubble(self, timings: dict[str, Sequence[float]]) -> dict[str, Sequence[float]]:
        """Return a pipeline's share of waiting in a step, and the cost of its schedule."""
        if self.spec.strategy not in ("pipeline", "model"):
            return {}
        names = ("communication_seconds", "forward_seconds", "backward_seconds")
        rows = zip(*(timings[name] for name in names), strict=True)
        measured = [row[0] / sum(row) for row in rows]
        expected = [self.curves.bubble] * len(measured)
        return {"bubble_fraction": measured, "bubble_fraction_expected": expected}

    def _report_progress(
        self, steps: list[int], stamps: list[float], job: dict[str, Sequence[float]]
    ) -> None:
        least = max(PROGRESS_SECONDS, (stamps[-1] - self._reported_at) / _LINES_AT_ONCE)
        for i, (step, stamp) in enumerate(zip(steps, stamps, strict=True)):
            if stamp - self._reported_at >= least:
                self._reported_at = stamp
                shown = {name: values[i] for name, values in job.items()}
                self.write(output.progress(step, self.total, shown))

    def _capture(self) -> None:
        request = self._gradients_asked
        asked = request > self._answered
        if asked or _divides(self.spec.training.capture_gradients_every_steps, self.step):
            self._answered = max(request, self._answered)
            record = self._gradients.record(
                self.step, self.last["gradient_norm"], request if asked else 0
            )
            first = self.group.ranks[0].spool
            first.event("gradients", record.as_json(), self._finished_at)

    def _evaluate(self) -> None:
        metrics = self.curves.evaluation(self.step)
        self.last |= metrics
        columns: dict[str, Sequence[float]] = {name: [v] for name, v in metrics.items()}
        table = MetricTable(None, [self.step], [self._finished_at], columns)
        self.group.ranks[0].spool.metrics([table])
        self.write(output.step_line(self.step, self.total, metrics))

    # -- how it continues, and ends --------------------------------------------------------------

    def saves(self) -> bool:
        seconds = self.spec.checkpoint.every_seconds
        wished = seconds is not None and self._finished_at - self._saved_at >= seconds
        return wished or _divides(self.spec.checkpoint.every_steps, self.step)

    def checkpoint(self, name: CheckpointName) -> tuple[dict[str, Any], Files | None]:
        self._saved_step, self._saved_at = self.step, self._finished_at
        size = int(max(self.model.parameters * _OPTIMIZER_BYTES, self._memory[0] * 0.22))
        self.write(f"step {self.step}/{self.total}  checkpoint saved")
        return save(self.launch, name, self._finite(), self._finished_at, size)

    def pause(self) -> None:
        self.group.save()
        self.group.record("paused", {"step": self.step, **self._measured()})
        self.write(f"paused at step {self.step}/{self.total}")

    def complete(self) -> None:
        self.group.save()
        digest = hashlib.sha256(f"{self.launch.job_id}/{self.launch.attempt}".encode())
        data = {
            "steps": self.step,
            "metrics": self._finite(),
            "weights_sha256": digest.hexdigest(),
            "seconds": self._finished_at - self._begun_at,
        }
        self.group.record("completed", data | self._measured())
        self.write(f"completed at step {self.step}/{self.total}")

    def _measured(self) -> dict[str, Any]:
        steps = self.step - self._first
        if not steps:
            return {}
        seconds = (self._finished_at - self._begun_at) / steps
        peak = float(self._memory.max())
        measured = {"peak_memory_bytes": peak, "step_seconds": seconds, "steps": steps}
        return {"measured": measured | {"communication_bytes": self._sent_bytes}}

    @property
    def _sent_bytes(self) -> float | None:
        if not self._averages:
            return None
        ranks, compression = len(self.group.ranks), self.spec.parallelism.gradient_sync.compression
        return 2 * 4 * self.model.parameters * (ranks - 1) / ranks * _SENT.get(compression, 1.0)

    def _finite(self) -> dict[str, float]:
        return {name: value for name, value in self.last.items() if math.isfinite(value)}

    def fail(self, rank: Rank, fate: Fate) -> int:
        if fate.kind == "killed":
            rank.account = work.KILLED
            return -9
        kind, message = self._exception(rank, fate)
        text = output.traceback(rank.number, output.LOOP, kind, message)
        self.write(text, rank.number, "stderr")
        data = {"type": kind, "message": message, "traceback": text}
        rank.spool.event("failure", data, self._finished_at)
        rank.account = work.failed(f"failed: {kind}: {message}", text, kind)
        return 1

    def _exception(self, rank: Rank, fate: Fate) -> tuple[str, str]:
        """Return type and message."""
        match fate.kind:
            case "out of memory":
                return "OutOfMemoryError", (
                    f"CUDA out of memory. Tried to allocate 9.38 GiB. GPU {rank.device[1]} has a "
                    "total capacity of 79.11 GiB of which 3.94 GiB is free. Of the allocated "
                    "memory 71.26 GiB is allocated by PyTorch"
                )
            case "diverges":
                saved = "there is no checkpoint before it"
                if self._saved_step:
                    saved = f"the newest checkpoint before it is of step {self._saved_step}"
                return "NonFiniteLossError", (
                    f"the loss is nan at step {self.step}; {saved}; lower training.learning_rate, "
                    "or set training.gradient_clip"
                )
            case _:
                return "ValueError", "a batch holds a label that is not below 10: 255"

    def load(self, rank: int) -> Load:
        seconds = self._block().seconds[min(self._at, len(self._block().steps) - 1), rank]
        computing = float((seconds[1] + seconds[2] + seconds[4]) / seconds.sum())
        # Kernels of a small model leave most of the device idle while they run.
        weight = min(1.0, 0.3 + 0.16 * math.log10(1 + self._memory[rank] / 2**26))
        return Load(
            min(99.0, 55 + 46 * computing) * weight**0.3,
            min(1.0, 0.1 + 0.95 * computing * weight),
            float(self._memory[rank]),
        )


def _next_multiple(every: int, step: int) -> int:
    return (step // every + 1) * every


def _divides(every: int | None, step: int) -> bool:
    return every is not None and step % every == 0
