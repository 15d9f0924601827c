"""The work of a script: it says much, measures little, and takes no part in pauses."""

import math
from collections.abc import Sequence
from typing import Any

from trainhall.cluster.simulator.ranks import Fate, Group, Rank
from trainhall.cluster.simulator.workload import output, work
from trainhall.cluster.simulator.workload.gpu import Load
from trainhall.cluster.simulator.workload.work import ShownWork
from trainhall.training.link.frames import MetricTable
from trainhall.training.link.launch import Command

_EVERY_SECONDS = 4.0


class Script(ShownWork):
    def __init__(self, group: Group) -> None:
        super().__init__(group)
        spec = group.launch.spec
        assert spec.script is not None
        # Rounds of a few seconds: between two and six minutes.
        self._total = round(group.chance.uniform(30, 90))
        self._next = group.now() + _EVERY_SECONDS
        self._memory = group.chance.uniform(8, 50) * 2**30
        self._program = spec.script.path or f"-m {spec.script.module}"
        self._command = " ".join([self._program, *spec.arguments])

    @property
    def total(self) -> int:
        return self._total

    def start(self, data: dict[str, Any]) -> None:
        self.report_packages()
        self.write(f"{output.BOLD}$ {self._command}{output.RESET}")

    def note_first_step(self, data: dict[str, Any]) -> None:
        """Report nothing: it does not use the SDK."""

    def wait(self) -> float:
        rounds = 1 if self.group.asked is Command.PAUSE else self._rounds_left()
        return max(0.0, self._next + (rounds - 1) * _EVERY_SECONDS - self.group.now())

    def _rounds_left(self) -> int:
        """Return the number of rounds until it ends, well or not."""
        left = self.total - self.group.step
        return left if self.fate is None else min(left, int(self.fate[0].steps_left))

    def take(self, *, is_due: bool) -> int:
        asked, most = self.group.asked, self._rounds_left()
        passed = self.group.now() - self._next + work.CLOCK_SECONDS
        rounds = min(1 if asked is Command.PAUSE else most, math.floor(passed / _EVERY_SECONDS) + 1)
        for number in range(1, rounds + 1):
            self._round(self.group.step + number)
        return max(0, rounds)

    def _round(self, step: int) -> None:
        now, chance, ranks = self._next, self.group.chance, self.group.ranks
        loss = 0.4 + 2.2 * math.exp(-3 * step / self.total) + 0.05 * chance.gauss(0, 1)
        for rank in sorted(ranks):
            for line in output.script_lines(rank, step, self.total, loss, chance):
                self.write(line, rank)
        rate = 21_000 * self.group.launch.world_size * chance.uniform(0.94, 1.03)
        columns: dict[str, Sequence[float]] = {"loss": [loss], "tokens_per_second": [rate]}
        ranks[0].spool.metrics([MetricTable(None, [step], [now], columns)])
        self._next = now + _EVERY_SECONDS

    def fail(self, rank: Rank, fate: Fate) -> int:
        line = 'loss = model(**batch["inputs"], labels=batch["labels"])'
        frames = (
            (self._program, 88, "<module>", "main(arguments())"),
            (self._program, 61, "main", line),
        )
        text = output.traceback(rank.number, frames, "KeyError", "'labels'")
        self.write(text, rank.number, "stderr")
        rank.account = work.failed("ended with exit code 1: KeyError: 'labels'", text)
        return 1

    def saves(self) -> bool:
        return False

    def pause(self) -> None:
        """End by SIGTERM: without the SDK nothing is saved."""
        self.write(f"{output.RED}got SIGTERM, ending{output.RESET}", stream="stderr")

    def complete(self) -> None:
        self.write(f"{output.GREEN}done{output.RESET}, {self.total} rounds")

    def load(self, rank: int) -> Load:
        swing = math.sin(self._next / 7 + rank)
        return Load(78 + 16 * swing, 0.55 + 0.12 * swing, self._memory)
