"""Hypothesis machines that drive a simulated cluster, on a database that all examples share."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from support.cluster.simulated import SimulatedCluster, wipe
from support.examples import share_of

from trainhall.db.database import Database

T = TypeVar("T")


class ClusterMachine(RuleBasedStateMachine):
    db: Database
    loop: asyncio.AbstractEventLoop
    folder: Path
    cluster: SimulatedCluster

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def start_cluster(self) -> None:
        self.run(wipe(self.db))
        self.cluster = SimulatedCluster(self.db, self.folder)


def run_machine(
    machine: type[ClusterMachine], db: Database, folder: Path, *, examples: int, steps: int
) -> None:
    loop = asyncio.new_event_loop()
    machine.db, machine.loop, machine.folder = db, loop, folder
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=share_of(examples),
                stateful_step_count=steps,
                deadline=None,
                # A failing sequence is short already; shrinking it would take minutes.
                phases=[Phase.explicit, Phase.reuse, Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        loop.run_until_complete(db.close())
        loop.close()
