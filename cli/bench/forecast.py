"""Forecast of the cost model for several algorithms, numbers of ranks, and sizes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainhall.distributed.collectives.algorithms.registry import all_reduce
from trainhall.distributed.collectives.cost import Cluster, Crossover, Seconds, crossovers, predict

CURVE = np.geomspace(256, 2**32, 200)
"""Sizes in bytes at which curves are computed, and between which crossovers are looked for."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    algorithms: list[str]
    asked_sizes: list[float]
    sizes: Seconds
    """In bytes, rising: those asked for, and the curve."""
    seconds: dict[int, dict[str, Seconds]]
    """By ranks and algorithm, one for each of `sizes`."""
    cluster: Cluster

    def asked(self) -> Iterator[tuple[int, dict[float, dict[str, float]]]]:
        """Return, by ranks and size, the seconds of each algorithm."""
        places = np.searchsorted(self.sizes, self.asked_sizes)
        for ranks, seconds in self.seconds.items():
            yield (
                ranks,
                {
                    size: {name: float(seconds[name][place]) for name in self.algorithms}
                    for size, place in zip(self.asked_sizes, places, strict=True)
                },
            )

    def crossovers(self, ranks: int) -> list[Crossover]:
        return crossovers(self.sizes, self.seconds[ranks])

    def document(self) -> dict[str, Any]:
        """Return it for JSON and YAML: sizes in bytes, times in seconds."""
        return {
            "cluster": {
                "ranks_per_device": self.cluster.ranks_per_device,
                "devices_per_host": self.cluster.devices_per_host,
                "hosts_per_rack": self.cluster.hosts_per_rack,
                "links": {
                    str(kind): {"latency": link.latency, "bandwidth": link.bandwidth}
                    for kind, link in self.cluster.links.items()
                },
            },
            "times": [
                {"ranks": ranks, "size": round(size), "algorithm": name, "seconds": value}
                for ranks, of_size in self.asked()
                for size, seconds in of_size.items()
                for name, value in seconds.items()
            ],
            "crossovers": [
                {"ranks": ranks, "size": round(c.size), "below": c.below, "above": c.above}
                for ranks in self.seconds
                for c in self.crossovers(ranks)
            ],
        }


def forecast(
    *,
    ranks: list[int],
    sizes: list[float],
    algorithms: list[str],
    cluster: Cluster,
    servers: int | None,
) -> Forecast:
    """Ask the model.

    Args:
        cluster: which the ranks fill in order, whatever their number.

    Raises:
        ScheduleError: an algorithm cannot be laid out for one of the numbers of ranks.
    """
    everywhere = np.union1d(CURVE, sizes)
    seconds: dict[int, dict[str, Seconds]] = {}
    for count in ranks:
        filled = replace(cluster, world_size=count)
        schedules = {
            name: all_reduce(name, count, hosts=filled.hosts, servers=servers)
            for name in algorithms
        }
        seconds[count] = {
            name: predict(schedule, filled, everywhere) for name, schedule in schedules.items()
        }
    return Forecast(
        algorithms=algorithms,
        asked_sizes=sizes,
        sizes=everywhere,
        seconds=seconds,
        cluster=cluster,
    )
