"""The work of a script: it says much, measures little, and takes no part in pauses."""

import math
from collections.abc import Sequence

from trainhall.cluster.simulator.workload import output, work
from trainhall.cluster.simulator.workload.gpu import Load
from trainhall.cluster.simulator.workload.work import Group, Work
from trainhall.training.link.frames import MetricTable
from trainhall.training.link.launch import Command
from trainhall.training.link.status import Outcome

_EVERY_SECONDS = 4.0


class Script(Work):
    def __init__(self, group: Group, now: float) -> None:
        super().__init__(group)
        script = group.launch.spec.script
        assert script is not None
        # Rounds of a few seconds: between two and six minutes.
        self.total = round(group.chance.uniform(30, 90))
        self.step = 0
        self._next = now + _EVERY_SECONDS
        self._memory = group.chance.uniform(8, 50) * 2**30
        self._program = script.path or f"-m {script.module}"
        command = " ".join([self._program, *script.args])
        group.spool(0).write(f"{output.BOLD}$ {command}{output.RESET}")

    @property
    def due(self) -> float:
        if self.group.asked is Command.PAUSE:
            return self._next
        fate, mark = self.group.fate, self.total
        if fate is not None and fate.step > self.step:
            mark = min(mark, fate.step)
        return self._next + (mark - self.step - 1) * _EVERY_SECONDS

    def progress(self, now: float) -> None:
        if self.group.asked is Command.PAUSE:
            # SIGTERM; without the SDK nothing is saved.
            self.group.spool(0).write(f"{output.RED}got SIGTERM, ending{output.RESET}", "stderr")
            self.group.end(Outcome.PAUSED, now)
        while self.group.whole and self._next <= now:
            self._round()

    def _round(self) -> None:
        now, chance = self._next, self.group.chance
        self.step += 1
        loss = 0.4 + 2.2 * math.exp(-3 * self.step / self.total) + 0.05 * chance.gauss(0, 1)
        for rank in self.group.ranks():
            for line in output.script_lines(rank, self.step, self.total, loss, chance):
                self.group.spool(rank).write(line)
        rate = 21_000 * self.group.launch.world_size * chance.uniform(0.94, 1.03)
        columns: dict[str, Sequence[float]] = {"loss": [loss], "tokens_per_second": [rate]}
        self.group.spool(0).metrics([MetricTable(None, [self.step], [now], columns)])
        self._next = now + _EVERY_SECONDS
        fate = self.group.fate
        if fate is not None and fate.step == self.step:
            frames = (
                (self._program, 88, "<module>", "main(arguments())"),
                (
                    self._program,
                    61,
                    "main",
                    'loss = model(**batch["inputs"], labels=batch["labels"])',
                ),
            )
            text = output.traceback(fate.rank, frames, "KeyError", "'labels'")
            self.group.spool(fate.rank).write(text, "stderr")
            self.group.fail(now, fate.rank, work.crashed(fate.rank, "KeyError: 'labels'", text))
        elif self.step == self.total:
            self.group.spool(0).write(f"{output.GREEN}done{output.RESET}, {self.total} rounds")
            self.group.end(Outcome.COMPLETED, now)

    def load(self, rank: int) -> Load:
        swing = math.sin(self._next / 7 + rank)
        return Load(78 + 16 * swing, 0.55 + 0.12 * swing, self._memory)
