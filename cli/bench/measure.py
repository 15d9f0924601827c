"""Starts the ranks of `trainhall bench collectives` and collects what they found."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainhall.cli.base.errors import CliError
from trainhall.distributed.bench.hosts import INTERFACE, limited_hosts
from trainhall.distributed.bench.request import Measurements, Scenario, Sync, Time, predicted
from trainhall.distributed.collectives.cost import Link, LinkClass

MOST_SECONDS = 600
"""Time limit of one scenario."""
LARGE = 1 << 20
"""From here on the cost model is held against what was measured."""


@dataclass(frozen=True)
class Measured:
    scenario: Scenario
    measurements: Measurements

    def predicted(self, time: Time) -> float:
        return predicted(time.method, self.scenario, self.measurements.links, time.size)

    def model_errors(self) -> list[float]:
        """Return the errors of predicted times, as shares of the measured ones."""
        return [
            abs(self.predicted(time) / time.seconds - 1)
            for time in self.measurements.times
            if time.size >= LARGE
        ]


def measure(scenario: Scenario) -> Measured:
    """Run a scenario.

    Raises:
        NetworkNotAllowedError: this machine gives no limited links.
        CliError: a rank failed; the message has the last line of each rank.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        prefixes: list[list[str]] = [[] for _ in scenario.hosts]
        if scenario.bits_per_second:
            hosts = limited_hosts(len(scenario.hosts), scenario.bits_per_second)
            prefixes = [host.prefix for host in stack.enter_context(hosts)]
        ranks = [
            stack.enter_context(_rank(scenario, rank, folder, prefix))
            for host, prefix in zip(scenario.hosts, prefixes, strict=True)
            for rank in host
        ]
        return Measured(scenario, _collect(ranks, folder))


@contextmanager
def _rank(
    scenario: Scenario, rank: int, folder: Path, prefix: list[str]
) -> Iterator[subprocess.Popen[bytes]]:
    request = {"rank": rank, "store": str(folder / "store"), "scenario": asdict(scenario)}
    interface = INTERFACE if prefix else "lo0" if sys.platform == "darwin" else "lo"
    module = [sys.executable, "-m", "trainhall.distributed.bench.ranks", json.dumps(request)]
    with (
        (folder / f"{rank}.out").open("wb") as out,
        (folder / f"{rank}.err").open("wb") as err,
        subprocess.Popen(
            [*prefix, *module],
            stdin=subprocess.PIPE,  # it ends with this process
            stdout=out,
            stderr=err,
            env=os.environ | {"GLOO_SOCKET_IFNAME": interface, "OMP_NUM_THREADS": "1"},
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def _collect(ranks: list[subprocess.Popen[bytes]], folder: Path) -> Measurements:
    for rank, process in enumerate(ranks):
        try:
            code = process.wait(MOST_SECONDS)
        except subprocess.TimeoutExpired:
            raise CliError(f"rank {rank} did not end within {MOST_SECONDS} s") from None
        if code:
            # Others fail since one did: the first one has the reason.
            texts = [path.read_text(errors="replace") for path in sorted(folder.glob("*.err"))]
            last = [text.strip().splitlines()[-1] for text in texts if text.strip()]
            raise CliError(f"rank {rank} ended with code {code}: {'; '.join(dict.fromkeys(last))}")
    return _read(json.loads((folder / "0.out").read_text().splitlines()[-1]))


def _read(document: dict[str, Any]) -> Measurements:
    return Measurements(
        links={LinkClass(kind): Link(**link) for kind, link in document["links"].items()},
        times=[Time(**time) for time in document["times"]],
        syncs=[Sync(**sync) for sync in document["syncs"]],
        backward_seconds=document["backward_seconds"],
        gradient_bytes=document["gradient_bytes"],
    )
