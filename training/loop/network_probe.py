"""Measures a job's links, and estimates what each compression of its gradients would save."""

from dataclasses import asdict
from datetime import timedelta
from operator import attrgetter
from typing import Any

import torch
import torch.distributed as dist

from trainhall.distributed import breakable, process_group
from trainhall.distributed.collectives.communicator import Communicator
from trainhall.distributed.collectives.cost import Link, LinkClass
from trainhall.distributed.compression.forecast import NAMES, Forecast, Gradients, forecast
from trainhall.distributed.exchange import gather_hosts
from trainhall.distributed.gloo import Gloo
from trainhall.distributed.probe import ByRings, Exchanges, measure_links
from trainhall.distributed.probe_native import ByMessages
from trainhall.parallelism.data_parallel.gradient_sync import DEFAULT_RATIO, SyncOptions
from trainhall.parallelism.strategy import Strategy
from trainhall.training.common.units import brief

SECONDS = 0.05
"""For each class of links."""
_TIMEOUT = timedelta(minutes=5)
_PLACES = {"host": "within a host", "rack": "between hosts"}


def measure(
    strategy: Strategy, options: SyncOptions, bucket_mb: float, device: torch.device
) -> dict[str, Any]:
    """Measure the links between ranks; a collective of a fraction of a second.

    Returns:
        `message` for people, and for programs `links` (latency in seconds, bandwidth in bytes a
        second), `gradient_bytes` and, by compression, the seconds that a step's gradients are
        expected to take, sent and computed, and how many of them the compression gains. What the
        backward pass would hide is not taken off. `message` alone where a rank could not measure.
    """
    backend = "nccl" if device.type == "cuda" else "gloo"
    group = process_group.new_group(backend, _TIMEOUT)
    gradients = _gradients(strategy, bucket_mb)
    ratio = options.ratio or DEFAULT_RATIO
    mine: tuple[dict[LinkClass, Link], list[Forecast], str]
    try:
        hosts = gather_hosts()
        links = measure_links(_exchanges(group, device), hosts, seconds=SECONDS)
        mine = links, [forecast(name, ratio, gradients, hosts, links) for name in NAMES], ""
    except Exception as error:
        # A job can do without; any other fault stops it, and is reported, on its own.
        mine = {}, [], f"{type(error).__name__}: {error}"
    gathered = breakable.gather_objects(mine, process_group.cpu_group())
    for rank, (_, _, failure) in enumerate(gathered):
        if failure:
            return {"message": f"links: not measured: rank {rank}: {failure}"}
    dist.destroy_process_group(group)  # no rank has anything under way in it
    links = mine[0]
    # A step waits for the slowest rank.
    whole, *others = (
        max(each, key=attrgetter("seconds"))
        for each in zip(*(f for _, f, _ in gathered), strict=True)
    )
    report = {
        "links": {str(kind): asdict(link) for kind, link in links.items()},
        "gradient_bytes": gradients.bytes,
        "whole_seconds": whole.seconds,
        "ratio": ratio,
        "compressions": {
            each.compression: {
                "on": each.compression == options.compression,
                "sending_seconds": each.sending_seconds,
                "own_seconds": each.own_seconds,
                "gained_seconds": whole.seconds - each.seconds,
            }
            for each in others
        },
    }
    return {"message": message(report), **report}


def _exchanges(group: dist.ProcessGroup, device: torch.device) -> Exchanges:
    """Return the exchanges to measure links with: those that combine gradients on such a device."""
    if device.type == "cuda":
        return ByMessages(group, device)
    return ByRings(Communicator(Gloo(group), timeout=_TIMEOUT.total_seconds()))


def _gradients(strategy: Strategy, bucket_mb: float) -> Gradients:
    parameters = list(strategy.parameters.values())
    return Gradients(
        [tuple(parameter.shape) for parameter in parameters],
        parameters[0].dtype,
        bucket_mb * 2**20,
        parameters[0].device,
    )


def message(report: dict[str, Any]) -> str:
    """Describe a report in a sentence or two."""
    links = "; ".join(
        f"{brief(link['latency'])} and {link['bandwidth'] / 1e6:,.0f} MB/s {_PLACES[kind]}"
        for kind, link in report["links"].items()
    )
    compressions = []
    for name, each in report["compressions"].items():
        gained = each["gained_seconds"]
        effect = "saves" if gained > 0 else "costs"
        name = f"{name} (in use)" if each["on"] else name
        compressions.append(f"{name} {effect} {brief(abs(gained))}")
    return (
        f"links: {links}. An all-reduce of {size(report['gradient_bytes'])} of gradients takes "
        f"about {brief(report['whole_seconds'])} per step; estimated effect of compression per "
        f"step: {', '.join(compressions)}"
    )


def size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"
