"""The work of a built-in task: steps, evaluations and checkpoints, as the training loop does."""

import hashlib
import math
import zlib
from collections import deque
from collections.abc import Sequence

import numpy as np

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
from trainhall.cluster.simulator.workload.work import Fate, Group, Work
from trainhall.training.checkpoint.format.names import parse_name
from trainhall.training.link.frames import MetricTable
from trainhall.training.link.launch import Command
from trainhall.training.link.status import Outcome

PROGRESS_SECONDS = 10.0
"""Training between two lines of progress, at least."""
_LINES_AT_ONCE = 12
"""Most lines of progress, when a long time passes at once."""
_OPTIMIZER_BYTES = 12
"""Bytes of a parameter in a checkpoint: the weight and two moments."""


class Training(Work):
    def __init__(self, group: Group, now: float) -> None:
        super().__init__(group)
        self.launch = group.launch
        self.spec = group.launch.spec
        self.model = model_of(self.spec)
        self.total = total_steps(self.spec, self.model)
        self.step = self._first = self._resumed_step()
        self.last: dict[str, float] = {}
        """The newest value of every job-wide series."""
        self.curves = Curves(
            self.spec,
            self.model,
            workers=self.launch.world_size,
            total=self.total,
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
        self._begun_at = self._finished_at = self._saved_at = self._reported_at = now
        self._saved_step = self.step
        self._report_start(now)

    def _resumed_step(self) -> int:
        resume = self.launch.checkpoint.resume
        name = parse_name(resume[0]) if resume else None
        return name.step if name is not None else 0

    def _report_start(self, now: float) -> None:
        first = self.group.spool(0)
        resumed = self.step if self.launch.checkpoint.resume else None
        first.event(
            "started",
            {"resumed_from": resumed, "total_steps": self.total, "samples": self.model.samples},
            now,
        )
        first.write(
            output.started(
                self.spec.name,
                world_size=self.launch.world_size,
                samples=self.model.samples,
                parameters=self.model.parameters,
                total=self.total,
                step=self.step,
            )
        )
        for number, host in self.group.hosts.items():
            rank = min(host.spools)
            text = output.warning(rank, self.group.names[number], self.group.chance)
            host.spools[rank].write(text, "stderr")

    # -- time ------------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        if self.group.asked is not Command.RUN:
            return self._finish_of_next()
        mean = float(self._block().durations.mean())
        return self._finish_of_next() + (self._next_save_or_end() - self.step - 1) * mean

    def _end(self) -> int:
        """The step at which it ends, well or not."""
        fate = self.group.fate
        if fate is None or fate.step + self._first <= self.step:
            return self.total
        return min(self.total, fate.step + self._first)

    def progress(self, now: float) -> None:
        while self.group.whole and self.step < self.total and self._finish_of_next() <= now:
            self._write(self._take(now))
            self._do_what_is_due()

    def _next_save_or_end(self) -> int:
        every, seconds = self.spec.checkpoint.every_steps, self.spec.checkpoint.every_seconds
        step = self._end()
        if every is not None:
            step = min(step, _next_multiple(every, self.step))
        if seconds is not None:
            left = seconds - (self._finished_at - self._saved_at)
            steps = math.ceil(left / float(self._block().durations.mean()))
            step = min(step, self.step + max(1, steps))
        return step

    def _landmark(self) -> int:
        """The next step at which something is due beside metrics."""
        if self.group.gradients > self._answered:
            return self.step + 1
        training = self.spec.training
        rhythms = (training.evaluate_every_steps, training.capture_gradients_every_steps)
        multiples = [_next_multiple(every, self.step) for every in rhythms if every is not None]
        return min([self._next_save_or_end(), *multiples])

    def _block(self) -> Block:
        if not self._blocks:
            self._blocks.append(self.curves.block())
        return self._blocks[0]

    def _finish_of_next(self) -> float:
        return self._finished_at + float(self._block().durations[self._at])

    def _take(self, now: float) -> Block:
        """The steps of the present block that end by `now`, up to the next landmark."""
        block = self._block()
        most = self._landmark() - self.step
        if self.group.asked is not Command.RUN:
            most = 1
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

    def _write(self, block: Block) -> None:
        """Metric frames of these steps: each rank's timings, and from rank 0 what concerns all."""
        times = self._finished_at + np.cumsum(block.durations)
        steps, stamps = block.steps.tolist(), times.tolist()
        self._diverge(block)
        job = self._job_columns(block)
        for rank in self.group.ranks():
            own = _timings(block.seconds[:, rank])
            own["peak_memory_bytes"] = [float(self._memory[rank])] * len(steps)
            tables = [MetricTable(rank, steps, stamps, own)]
            if rank == 0:
                tables.append(MetricTable(None, steps, stamps, job))
            self.group.spool(rank).metrics(tables)
        self.last |= {name: values[-1] for name, values in job.items()}
        self.step = steps[-1]
        self._report_progress(steps, stamps, job)
        self._finished_at = stamps[-1]

    def _job_columns(self, block: Block) -> dict[str, Sequence[float]]:
        job: dict[str, Sequence[float]] = {n: v.tolist() for n, v in block.job.items()}
        rates, norms = job.pop("learning_rate"), job.pop("gradient_norm")
        timings = _timings(block.seconds.mean(axis=1))
        batch = self.spec.training.global_batch_size
        return self._bubble(timings) | {
            **job,
            **timings,
            "learning_rate": rates,
            "gradient_norm": norms,
            "samples_per_second": [batch / seconds for seconds in timings["step_seconds"]],
            "peak_memory_bytes": [float(self._memory.max())] * len(block.steps),
        }

    def _bubble(self, timings: dict[str, Sequence[float]]) -> dict[str, Sequence[float]]:
        """Return a pipeline's share of waiting in a step, and the cost of its schedule."""
        if self.spec.strategy not in ("pipeline", "model"):
            return {}
        names = ("communication_seconds", "forward_seconds", "backward_seconds")
        rows = zip(*(timings[name] for name in names), strict=True)
        measured = [row[0] / sum(row) for row in rows]
        expected = [self.curves.bubble] * len(measured)
        return {"bubble_fraction": measured, "bubble_fraction_expected": expected}

    def _diverge(self, block: Block) -> None:
        fate = self.group.fate
        if fate is not None and fate.kind == "diverges":
            lost = block.steps == fate.step + self._first
            for name in ("loss", "gradient_norm"):
                block.job[name][lost] = math.nan

    def _report_progress(
        self, steps: list[int], stamps: list[float], job: dict[str, Sequence[float]]
    ) -> None:
        least = max(PROGRESS_SECONDS, (stamps[-1] - self._reported_at) / _LINES_AT_ONCE)
        for i, (step, stamp) in enumerate(zip(steps, stamps, strict=True)):
            if stamp - self._reported_at >= least:
                self._reported_at = stamp
                shown = {name: values[i] for name, values in job.items()}
                self.group.spool(0).write(output.progress(step, self.total, shown))

    def _do_what_is_due(self) -> None:
        training, checkpoint = self.spec.training, self.spec.checkpoint
        last = self.step == self.total
        self._capture()
        if self._meets_its_fate():
            return
        if last or _divides(training.evaluate_every_steps, self.step):
            self._evaluate()
        seconds = checkpoint.every_seconds
        wished = seconds is not None and self._finished_at - self._saved_at >= seconds
        pausing = self.group.asked is Command.PAUSE and not last
        if last or pausing or wished or _divides(checkpoint.every_steps, self.step):
            self._save()
        if pausing:
            data = {"step": self.step, "measured": self._measured()}
            self.group.spool(0).event("paused", data, self._finished_at)
            self.group.spool(0).write(f"paused at step {self.step}/{self.total}")
            self.group.end(Outcome.PAUSED, self._finished_at)
        elif last:
            self._complete()

    def _capture(self) -> None:
        request = self.group.gradients
        asked = request > self._answered
        if asked or _divides(self.spec.training.capture_gradients_every_steps, self.step):
            self._answered = max(request, self._answered)
            record = self._gradients.record(
                self.step, self.last["gradient_norm"], request if asked else 0
            )
            self.group.spool(0).event("gradients", record.as_json(), self._finished_at)

    def _evaluate(self) -> None:
        metrics = self.curves.evaluation(self.step)
        self.last |= metrics
        columns: dict[str, Sequence[float]] = {name: [v] for name, v in metrics.items()}
        self.group.spool(0).metrics([MetricTable(None, [self.step], [self._finished_at], columns)])
        self.group.spool(0).write(output.step_line(self.step, self.total, metrics))

    def _save(self) -> None:
        if self._saved_step == self.step:
            return
        self._saved_step, self._saved_at = self.step, self._finished_at
        size = int(max(self.model.parameters * _OPTIMIZER_BYTES, self._memory[0] * 0.22))
        saved = save(self.launch, self.step, self._finite(), self._finished_at, size)
        self.group.spool(0).checkpoint(saved.event, saved.files, self._finished_at)
        self.group.spool(0).write(f"step {self.step}/{self.total}  checkpoint saved")

    def _complete(self) -> None:
        digest = hashlib.sha256(f"{self.launch.job_id}/{self.launch.attempt}".encode())
        self.group.spool(0).event(
            "completed",
            {
                "steps": self.step,
                "metrics": self._finite(),
                "weights_sha256": digest.hexdigest(),
                "seconds": self._finished_at - self._begun_at,
                "measured": self._measured(),
            },
            self._finished_at,
        )
        self.group.spool(0).write(f"completed at step {self.step}/{self.total}")
        self.group.end(Outcome.COMPLETED, self._finished_at)

    def _measured(self) -> dict[str, float]:
        steps = self.step - self._first
        seconds = (self._finished_at - self._begun_at) / steps
        return {
            "peak_memory_bytes": float(self._memory.max()),
            "step_seconds": seconds,
            "steps": steps,
        }

    def _finite(self) -> dict[str, float]:
        return {name: value for name, value in self.last.items() if math.isfinite(value)}

    def _meets_its_fate(self) -> bool:
        fate = self.group.fate
        if fate is None or self.step != fate.step + self._first:
            return False
        rank, now = fate.rank, self._finished_at
        if fate.kind == "killed":
            self.group.fail(now, rank, work.killed(rank))
            return True
        kind, message = self._exception(fate)
        text = output.traceback(rank, output.LOOP, kind, message)
        spool = self.group.spool(rank)
        spool.write(text, "stderr")
        spool.event("failure", {"type": kind, "message": message, "traceback": text}, now)
        self.group.fail(now, rank, work.raised(rank, kind, message, text))
        return True

    def _exception(self, fate: Fate) -> tuple[str, str]:
        """Type and message."""
        match fate.kind:
            case "out of memory":
                return "OutOfMemoryError", (
                    f"CUDA out of memory. Tried to allocate 9.38 GiB. GPU {fate.rank % 8} has a "
                    "total capacity of 79.11 GiB of which 3.94 GiB is free. Of the allocated "
                    "memory 71.26 GiB is allocated by PyTorch"
                )
            case "diverges":
                saved = f"of step {self._saved_step}" if self._saved_step else "none"
                return "NonFiniteLossError", (
                    f"the loss is nan at step {self.step}; the newest checkpoint before it is "
                    f"{saved}; lower training.learning_rate, or set training.gradient_clip"
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


def _timings(seconds: Floats) -> dict[str, Sequence[float]]:
    """Columns of `[steps, phases]` seconds."""
    phases = {f"{name}_seconds": seconds[:, i].tolist() for i, name in enumerate(PHASES)}
    return {"step_seconds": seconds.sum(axis=1).tolist(), **phases}


def _next_multiple(every: int, step: int) -> int:
    return (step // every + 1) * every


def _divides(every: int | None, step: int) -> bool:
    return every is not None and step % every == 0
