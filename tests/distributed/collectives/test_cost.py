"""The cost model: formulas agree with schedules, with the literature, and across link classes."""

from dataclasses import replace
from math import ceil, log2
from typing import Any

import numpy as np
import pytest

from trainhall.distributed.collectives.algorithms.registry import NAMES, all_reduce
from trainhall.distributed.collectives.algorithms.ring import Ring, RingAllGather, RingReduceScatter
from trainhall.distributed.collectives.cost import (
    EXAMPLE_LINKS,
    Cluster,
    Crossover,
    Link,
    LinkClass,
    crossovers,
    predict,
    walk,
)
from trainhall.distributed.collectives.errors import ScheduleError
from trainhall.distributed.collectives.schedule import Schedule, to_pairs

ALPHA, BANDWIDTH = 5e-6, 1e9
UNIFORM = {kind: Link(ALPHA, BANDWIDTH) for kind in LinkClass}


def flat(world_size: int) -> Cluster:
    """Equal links, none shared."""
    return Cluster(world_size=world_size, devices_per_host=world_size, links=UNIFORM)


def layered(world_size: int) -> Cluster:
    return Cluster(
        world_size=world_size, ranks_per_device=2, devices_per_host=2, hosts_per_rack=3
    )  # fmt: skip


def schedules(cluster: Cluster) -> list[Schedule]:
    n = cluster.world_size
    alone = [RingReduceScatter(n), RingAllGather(n)]
    return [all_reduce(name, n, hosts=cluster.hosts) for name in NAMES] + alone


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6, 13, 16, 31])
def test_cost_formula_matches_the_schedule(world_size: int) -> None:
    cluster = layered(world_size)
    for schedule in schedules(cluster):
        for size in (1000, 10**8):
            predicted = predict(schedule, cluster, size)
            assert predicted == pytest.approx(walk(schedule, cluster, size)), str(schedule)


@pytest.mark.parametrize("world_size", [2, 6, 13])
def test_cost_formula_matches_for_slow_duplex(world_size: int) -> None:
    links = {
        kind: replace(link, one_way=1.7 * link.bandwidth) for kind, link in EXAMPLE_LINKS.items()
    }
    cluster = replace(layered(world_size), links=links)
    for schedule in schedules(cluster):
        predicted = predict(schedule, cluster, 10**8)
        assert predicted == pytest.approx(walk(schedule, cluster, 10**8)), str(schedule)


def test_cost_of_duplex_uses_slower_link() -> None:
    """A ring, and not a tree; between hosts, what any of their ranks does counts."""
    links = dict.fromkeys(LinkClass, Link(ALPHA, BANDWIDTH, one_way=2 * BANDWIDTH))
    two = Cluster(world_size=2, links=links)
    assert predict(Ring(2), two, 1e6) == pytest.approx(2 * ALPHA + 1e6 / BANDWIDTH)
    assert predict(all_reduce("tree", 2), two, 1e6) == pytest.approx(2 * ALPHA + 1e6 / BANDWIDTH)
    hosts = Cluster(world_size=4, devices_per_host=2, links=links)
    apart = hosts.round_seconds(to_pairs([0, 3], [2, 1]), np.full(2, 1e6))
    assert apart == pytest.approx(ALPHA + 1e6 / BANDWIDTH)
    unequal = hosts.round_seconds(to_pairs([0, 3], [2, 1]), np.array([1e6, 5e5]))
    assert unequal == pytest.approx(ALPHA + 0.75e6 / BANDWIDTH)


@pytest.mark.parametrize("n", [2, 3, 8, 12, 64])
def test_cost_formulas_match_literature_on_equal_links(n: int) -> None:
    size = 1e6
    whole, up = size / BANDWIDTH, ceil(log2(n))
    power = 2 ** int(log2(n))
    expected = {
        "ring": (2 * (n - 1) if n > 2 else 1) * ALPHA + 2 * (n - 1) / n * whole,
        "tree": 2 * up * (ALPHA + whole),
        "naive": 2 * (n - 1) * (ALPHA + whole),
        "parameter_server": 2 * (n - 1) * (ALPHA + whole / 4),
        "halving_doubling": 2 * log2(power) * ALPHA
        + 2 * (power - 1) / power * whole
        + (2 * (ALPHA + whole) if n != power else 0),
    }
    for name, seconds in expected.items():
        schedule = all_reduce(name, n, servers=min(4, n))
        if n >= 4 or name != "parameter_server":
            assert predict(schedule, flat(n), size) == pytest.approx(seconds), name


def test_cost_of_thousands_of_ranks_is_quick() -> None:
    """Where the formula has few terms: the rounds of these worlds are never listed."""
    whole = 1e6 / BANDWIDTH
    assert predict(Ring(4096), flat(4096), 1e6) == pytest.approx(8190 * ALPHA + 8190 / 4096 * whole)
    assert predict(all_reduce("tree", 4096), flat(4096), 1e6) == pytest.approx(24 * (ALPHA + whole))


def test_cost_of_two_levels_adds_up() -> None:
    cluster = Cluster(world_size=32, devices_per_host=8, hosts_per_rack=4)
    inner, outer = cluster.links[LinkClass.HOST], cluster.links[LinkClass.RACK]
    size = 1e8
    expected = 2 * 3 * (inner.latency + size / inner.bandwidth) + 2 * 3 * (
        outer.latency + size / 4 / outer.bandwidth
    )
    schedule = all_reduce("hierarchical", 32, hosts=cluster.hosts)
    assert predict(schedule, cluster, size) == pytest.approx(expected)


def test_cost_uses_the_link_between_ranks() -> None:
    kinds = layered(30).between(to_pairs(0, [1, 2, 4, 11, 12]))
    assert [list(LinkClass)[kind] for kind in kinds] == [
        LinkClass.DEVICE, LinkClass.HOST, LinkClass.RACK, LinkClass.RACK, LinkClass.RACKS
    ]  # fmt: skip


def test_cost_shares_links_between_hosts() -> None:
    links = UNIFORM | {LinkClass.HOST: Link(0, 1e12)}
    cluster = Cluster(world_size=8, devices_per_host=4, hosts_per_rack=8, links=links)
    alone = cluster.round_seconds(to_pairs([0], [4]), np.array([1e6]))
    assert alone == pytest.approx(ALPHA + 1e6 / BANDWIDTH)
    out = cluster.round_seconds(to_pairs([0, 1, 2], [4, 5, 6]), np.full(3, 1e6))
    assert out == pytest.approx(ALPHA + 3e6 / BANDWIDTH)
    both_ways = cluster.round_seconds(to_pairs([0, 4], [4, 0]), np.full(2, 1e6))
    assert both_ways == pytest.approx(alone)


def test_hierarchy_is_cheaper_on_slow_host_links() -> None:
    links = UNIFORM | {LinkClass.HOST: Link(1e-6, 100e9)}
    cluster = Cluster(world_size=64, devices_per_host=8, hosts_per_rack=8, links=links)
    sizes = np.array([1e5])
    ring, hierarchical = (
        predict(all_reduce(name, 64, hosts=cluster.hosts), cluster, sizes)
        for name in ("ring", "hierarchical")
    )
    assert hierarchical < ring / 3


def test_fastest_changes_where_times_are_equal() -> None:
    cluster, sizes = flat(16), np.geomspace(1, 1e9, 60)
    seconds = {name: predict(all_reduce(name, 16), cluster, sizes) for name in ("ring", "tree")}
    (found,) = crossovers(sizes, seconds)
    assert (found.below, found.above) == ("tree", "ring")
    # 8 (α + m β) = 30 α + 30/16 m β
    assert found.size == pytest.approx(22 * ALPHA / (8 - 30 / 16) * BANDWIDTH)


def test_equal_times_are_no_crossover() -> None:
    sizes = np.array([1.0, 2.0, 4.0])
    assert crossovers(sizes, {"a": sizes, "b": sizes}) == []
    assert crossovers(sizes, {"a": sizes, "b": 6 - sizes}) == [Crossover(3.0, "a", "b")]


@pytest.mark.parametrize("name", ["world_size", "devices_per_host", "hosts_per_rack"])
def test_impossible_cluster_is_refused(name: str) -> None:
    sizes: dict[str, Any] = {"world_size": 4, name: 0}
    with pytest.raises(ScheduleError, match=f"{name} is 0; it must be at least 1"):
        Cluster(**sizes)
    with pytest.raises(ScheduleError, match="no link is given for host, rack, racks"):
        Cluster(world_size=4, links={LinkClass.DEVICE: Link(0, 1)})


def test_one_rank_costs_nothing() -> None:
    np.testing.assert_array_equal(predict(Ring(1), flat(1), [1.0, 2.0]), [0.0, 0.0])
