"""Where scenarios are played: clusters that they share, chance from a seed, and their reports."""

import math
import random
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from chaos.clusters import ChaosCluster, Shape, chaos_cluster
from chaos.report import Report, ViolatedError


class Stage:
    """One cluster at a time: a scenario that asks for the shape of the one before gets that."""

    def __init__(self, folder: Path, *, forked: bool = False) -> None:
        """`forked`: programs are forks where they can be, which is cheaper to start."""
        self.folder = folder
        self._forked = forked
        self.said = ""
        """What the programs of the cluster that a scenario failed in said last."""
        self._shape: Shape | None = None
        self._cluster: ChaosCluster | None = None
        self._stack = ExitStack()

    @contextmanager
    def cluster(self, shape: Shape) -> Iterator[ChaosCluster]:
        """A cluster in which nothing runs, for one scenario; it has to leave all hosts on.

        One that a scenario failed in is not used again.
        """
        if self._cluster is None or self._shape != shape:
            self.close()
            self._cluster = self._stack.enter_context(
                chaos_cluster(self.new_folder(), shape, forked=self._forked)
            )
            self._shape = shape
        try:
            yield self._cluster
            self._cluster.settle()
        except BaseException:
            self.said = self._cluster.said()
            self._cluster.sweep()  # some of it may be stopped, and would not end by itself
            self._cluster = None
            raise

    @contextmanager
    def cluster_on(self, database_url: str, shape: Shape) -> Iterator[ChaosCluster]:
        """A cluster for one scenario alone, whose state is in another database."""
        self.close()
        opened = chaos_cluster(
            self.new_folder(), shape, database_url=database_url, forked=self._forked
        )
        with opened as cluster:
            try:
                yield cluster
            except BaseException:
                self.said = cluster.said()
                raise

    def new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder)) / "c"

    def close(self) -> None:
        """Stop the cluster, and see that all of it ended."""
        self._cluster = None
        self._stack.close()


@dataclass
class Play:
    """One performance of a scenario."""

    stage: Stage
    chance: random.Random
    runs: int
    report: Report
    until: float = math.inf
    """When no further fault begins (monotonic)."""

    def times(self) -> Iterator[int]:
        """One number for each time that the fault shall happen, while there is time."""
        for number in range(self.runs):
            if number > 0 and time.monotonic() > self.until:
                self.report.cut_short(number, self.runs)
                return
            yield number

    @cached_property
    def folder(self) -> Path:
        """For what jobs write down."""
        return Path(tempfile.mkdtemp(prefix="truth-", dir=self.stage.folder))


@dataclass(frozen=True)
class Scenario:
    name: str
    play: Callable[[Play], None]
    runs: int
    """How often its fault happens in full (`make chaos`)."""
    few: int = field(default=1, kw_only=True)
    """The same in the tests."""
    slow: bool = field(default=False, kw_only=True)
    """`make slow` plays it, rather than `make test`."""
    obstacle: Callable[[], str | None] = field(default=lambda: None, kw_only=True)
    """Why it cannot be played on this machine; None: it can."""

    @property
    def about(self) -> str:
        """The first line of its documentation."""
        return (self.play.__doc__ or "").strip().splitlines()[0]

    def run(self, stage: Stage, seed: int, runs: int, *, limit_seconds: float = math.inf) -> Report:
        """Play it; a failure is in the report. No fault begins after `limit_seconds`."""
        report = Report(self.name)
        began = time.monotonic()
        stage.said = ""
        try:
            chance = random.Random(f"{seed} {self.name}")
            self.play(Play(stage, chance, runs, report, began + limit_seconds))
            if not report.injected or not report.checked:
                raise ViolatedError("nothing was injected, or nothing was checked")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            report.problem = (
                f"{type(error).__name__}: {error}\n({where.name}, seed {seed})\n{stage.said}"
            )
        report.seconds = time.monotonic() - began
        return report
