"""Built-in tasks that go on until their test lets them go; see `support.holds`."""

import contextlib
import os
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from torch import Tensor, nn

from trainhall.task import Task
from trainhall.training.spec import JobSpec
from trainhall.training.spec.tasks import DigitsParams, SyntheticParams
from trainhall.training.tasks import digits, synthetic

_FIRST_SECONDS = 0.01
_LOOK_SECONDS = 0.05


class Hold(BaseModel):
    """What a job waits for."""

    gate: str
    """A file; as soon as it is there, steps take no longer than they must."""
    share: float
    """Of the time since the job's first step, what each further one takes before that."""


class _Held(Task):
    def __init__(self, params: Any, job: JobSpec) -> None:
        super().__init__(params, job)  # type: ignore[call-arg]
        # The loss is asked for once in each accumulation round of each logical shard of the rank.
        shards = job.training.logical_shards if job.training.reproducible else 1
        own = -(-shards // int(os.environ["WORLD_SIZE"]))
        self._asked = job.training.gradient_accumulation * own
        hold: Hold | None = params.hold
        self._gate = None if hold is None else Path(hold.gate)
        self._share = 0.0 if hold is None else hold.share
        self._since: float | None = None

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        if model.training and self._gate is not None:
            self._wait(self._gate)
        return super().loss(model, batch)  # type: ignore[safe-super]

    def _wait(self, gate: Path) -> None:
        if self._since is None:
            self._since = _begun(gate)
        now = time.time()
        until = now + max(_FIRST_SECONDS, self._share * (now - self._since)) / self._asked
        while now < until:
            if gate.exists():
                self._gate = None
                return
            time.sleep(min(until - now, _LOOK_SECONDS))
            now = time.time()


def _begun(gate: Path) -> float:
    """When the first of the job's ranks came to a step, in any of its attempts."""
    mark = gate.with_name(gate.name + "-begun")
    with contextlib.suppress(FileExistsError):
        mark.touch(exist_ok=False)
    return mark.stat().st_mtime


class Synthetic(_Held, synthetic.Synthetic):
    class Params(SyntheticParams):
        hold: Hold | None = None


class Digits(_Held, digits.Digits):
    class Params(DigitsParams):
        hold: Hold | None = None
