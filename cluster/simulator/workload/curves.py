"""The numbers of a training run: plausible, noisy, and the same for the same seed.

They are drawn a block of steps at a time, so that they do not depend on how often they are read.
"""

import math
import zlib
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from trainhall.training.spec import JobSpec, LearningRateSchedule

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PHASES = ("data", "forward", "backward", "communication", "optimizer")
"""Phases of a step, in the order in which the recorder of the training loop writes them."""
BLOCK = 64
"""Steps that are drawn together."""
_COMMUNICATION = 3
_GIB = 2.0**30


@dataclass(frozen=True)
class Model:
    """Size of the model that the spec's task would train."""

    samples: int
    parameters: int
    start_loss: float
    floor_loss: float
    accuracy: bool
    """The task classifies, and so measures an accuracy."""
    step_seconds: float
    memory: float
    """Bytes that a rank holds at its peak."""


def model_of(spec: JobSpec) -> Model:
    """Return a known task's model, or a classifier of middle size for others."""
    assert spec.task is not None
    params = spec.task.params
    if spec.task.name == "digits":
        widths = [64, *params.get("hidden", [256]), 10]
        return Model(1438, _mlp(widths), 2.31, 0.02, True, 0.03, 0.4 * _GIB)
    if spec.task.name == "synthetic":
        samples = int(params.get("samples", 4096))
        widths = [int(params.get("features", 32)), *params.get("hidden", [64]), 1]
        idle = float(params.get("step_seconds", 0.0))
        # Idling imitates a larger model, so it takes the memory of one.
        memory = min(72.0, 0.5 + 34.0 * idle**0.5) * _GIB
        return Model(samples, _mlp(widths), 0.46, 0.012, False, idle + 0.01, memory)
    return Model(50_000, 11_000_000, 4.6, 0.3, True, 0.12, 6 * _GIB)


def total_steps(spec: JobSpec, model: Model) -> int:
    """Count steps as the training loop does: an epoch's last partial batch is dropped."""
    training = spec.training
    batches = max(1, model.samples // training.global_batch_size)
    return training.steps or (training.epochs or 1) * batches


def learning_rates(
    steps: Ints, *, peak: float, total: int, schedule: LearningRateSchedule
) -> Floats:
    """Return the rates of these steps (from 1) of `total`, as
    `training.optim.optimizers.learning_rate`."""
    warmup = schedule.warmup_steps
    after = np.maximum(steps - warmup, 0)
    match schedule.kind:
        case "constant":
            share = np.ones(len(steps))
        case "cosine":
            cosine = (1 + np.cos(np.pi * after / max(total - warmup, 1))) / 2
            share = schedule.final_ratio + (1 - schedule.final_ratio) * cosine
        case "step":
            times = np.maximum(after - 1, 0) // (schedule.decay_every or total)
            share = schedule.decay_factor ** times.astype(np.float64)
    rising = steps / max(warmup, 1)
    rates: Floats = peak * np.where(steps <= warmup, rising, share)
    return rates


@dataclass(frozen=True)
class Block:
    """Consecutive steps: `[steps]`, and of ranks `[steps, ranks, phases]` seconds."""

    steps: Ints
    job: dict[str, Floats]
    """Job-wide columns but those that follow from the seconds."""
    seconds: Floats
    durations: Floats
    """Duration of each step in wall time."""


class Curves:
    """The run of one attempt, from the step behind `first` on."""

    def __init__(
        self, spec: JobSpec, model: Model, *, workers: int, total: int, first: int, seed: int
    ) -> None:
        self._training = spec.training
        self._model = model
        self._total = total
        self._next = first + 1
        self._first = first + 1
        self._workers = workers
        self.bubble = _bubble(spec)
        """The share of passes in which the ranks of its pipeline must wait; 0 without one."""
        # A job's curve is one curve, whichever attempt draws it; its noise is the attempt's.
        job = np.random.default_rng(zlib.crc32(spec.name.encode()))
        self._steepness = job.uniform(0.55, 1.25)
        self._turn = total * job.uniform(0.008, 0.06)
        self._start = model.start_loss * job.uniform(0.9, 1.1)
        self._floor = model.floor_loss * job.uniform(0.7, 4.0)
        self._peak_memory = model.memory * job.uniform(0.7, 1.2)
        self._slow = job.integers(self._workers) if job.random() < 0.3 else None
        self._norm = job.uniform(1.5, 6.0)
        self._chance = np.random.default_rng(seed)
        self._evaluations = np.random.default_rng(seed + 1)
        self._rank_speed = 1 + 0.012 * self._chance.standard_normal(self._workers)
        if self._slow is not None:
            self._rank_speed[self._slow] += 0.13
        self._wander = 0.0

    @property
    def memory(self) -> Floats:
        """Peak of every rank, bytes: rank 0 holds a little more."""
        shares = 1 + 0.004 * np.cos(np.arange(self._workers) * 2.4)
        shares[0] += 0.012
        memory: Floats = np.round(self._peak_memory * shares)
        return memory

    def smooth_loss(self, step: float) -> float:
        """Return the loss without its noise."""
        share = (1 + step / self._turn) ** -self._steepness
        return float(self._floor + (self._start - self._floor) * share)

    def evaluation(self, step: int) -> dict[str, float]:
        """Evaluate on validation data: a little worse than training, more so in the end."""
        progress = step / self._total
        loss = (
            self.smooth_loss(step)
            * (1.04 + 0.12 * progress)
            * math.exp(0.01 * self._evaluations.standard_normal())
        )
        return {"eval_loss": loss} | (
            {"eval_accuracy": self._accuracy(np.array([loss])).item()}
            if self._model.accuracy else {}
        )  # fmt: skip

    def block(self) -> Block:
        """Compute the next steps."""
        steps = np.arange(self._next, self._next + BLOCK)
        self._next += BLOCK
        draws = self._chance.standard_normal((BLOCK, 6))
        smooth = np.array([self.smooth_loss(step) for step in steps.tolist()])
        noise = np.empty(BLOCK)
        for i, draw in enumerate(draws[:, 0]):
            self._wander = 0.97 * self._wander + 0.012 * draw
            noise[i] = self._wander
        loss = smooth * np.exp(noise + 0.05 * draws[:, 1])
        falling = (smooth / self._start) ** 0.35
        norm = self._norm * falling * np.exp(0.16 * draws[:, 2])
        norm = np.where(np.abs(draws[:, 3]) > 2.9, norm * 3.2, norm)
        job = {"loss": loss}
        if self._model.accuracy:
            batch = self._training.global_batch_size
            right = self._accuracy(loss)
            right = right + draws[:, 4] * np.sqrt(right * (1 - right) / batch)
            job["accuracy"] = np.round(np.clip(right, 0, 1) * batch) / batch
        job["learning_rate"] = learning_rates(
            steps,
            peak=self._training.learning_rate,
            total=self._total,
            schedule=self._training.learning_rate_schedule,
        )
        job["gradient_norm"] = norm
        seconds = self._seconds(steps)
        return Block(steps, job, seconds, seconds.sum(axis=2).mean(axis=1))

    def _accuracy(self, loss: Floats) -> Floats:
        wrong = 0.9 * (loss / self._model.start_loss) ** 1.1
        return np.clip(1.0 - wrong, 0.001, 0.999)

    def _seconds(self, steps: Ints) -> Floats:
        """Return seconds by step, rank and phase; all ranks wait for the slowest."""
        ranks = self._workers
        draws = self._chance.standard_normal((len(steps), ranks, 3))
        luck = self._chance.random((len(steps), ranks))
        base = self._model.step_seconds
        seconds = np.zeros((len(steps), ranks, len(PHASES)))
        data = 0.02 * base * np.exp(0.25 * draws[:, :, 0])
        seconds[:, :, 0] = np.where(luck > 0.998, 9 * data, data)
        seconds[:, :, 1] = 0.29 * base * self._rank_speed * np.exp(0.015 * draws[:, :, 1])
        seconds[:, :, 2] = 0.55 * base * self._rank_speed * np.exp(0.015 * draws[:, :, 2])
        seconds[:, :, 4] = 0.03 * base
        if steps[0] == self._first:
            seconds[0] *= 4  # kernels are chosen, memory is found
        if ranks > 1:
            computed = seconds.sum(axis=2)
            own = base * (0.02 + 0.012 * math.log2(ranks))
            # In a pipeline ranks wait for the first and the last micro-batch.
            passes = seconds[:, :, 1:3].sum(axis=2).max(axis=1, keepdims=True)
            waits = passes * self.bubble / (1 - self.bubble)
            seconds[:, :, _COMMUNICATION] = (
                computed.max(axis=1, keepdims=True) - computed + own + waits
            )
        return seconds


def _bubble(spec: JobSpec) -> float:
    if spec.strategy not in ("pipeline", "model"):
        return 0.0
    ranks = spec.degrees.pipeline
    return (ranks - 1) / (spec.microbatches + ranks - 1)


def _mlp(widths: list[int]) -> int:
    return sum(a * b + b for a, b in pairwise(widths))
