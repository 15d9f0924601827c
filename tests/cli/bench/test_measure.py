"""What was measured of collectives: tables, goals and a report; and a real run."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainhall.cli.bench import report as bench_report
from trainhall.cli.bench.measure import Measured
from trainhall.cli.main import app
from trainhall.distributed.bench.request import (
    Measurements,
    Scenario,
    Sync,
    Time,
    predicted,
    schedule,
)
from trainhall.distributed.collectives.cost import Link, LinkClass

KIB = 1024
PAIR = Scenario("loopback, 2 ranks", ((0, 1),), (4 * KIB, 16 << 20))
HOSTS = ((0, 1), (2, 3))
LINKS = {LinkClass.HOST: Link(1e-5, 1e9), LinkClass.RACK: Link(1e-4, 125e6)}


def measured(scenario: Scenario, seconds: dict[str, float] | None = None) -> Measured:
    """What the model says, but for the methods given, which take so long for any size."""
    times = [
        Time(method, size, (seconds or {}).get(method, predicted(method, scenario, LINKS, size)), 1)
        for size in scenario.sizes
        for method in scenario.methods
    ]
    syncs = [
        Sync(method, (seconds or {}).get(method, 1.0), 0.1, 0.5)
        for method in ("unbucketed", "native", "ring", "hierarchical", "fp16", "topk", "powersgd")
    ]
    return Measured(scenario, Measurements(LINKS, times, syncs, 0.2, 47_000_000))


def goals(*found: Measured) -> dict[str, bool]:
    return {goal.name: goal.met for goal in bench_report.goals(found)}


def test_goals_of_two_ranks_on_loopback() -> None:
    assert goals(measured(PAIR)) == {
        "loopback, 2 ranks: ring by native, 4.0 KiB": True,
        "loopback, 2 ranks: ring by native, 16.0 MiB": True,
        "cost model: median error, limited links and 2 ranks on loopback, from 1 MiB": True,
    }


def test_model_that_is_off_misses_its_goal() -> None:
    slow = dict.fromkeys(PAIR.methods, 1.0)
    assert list(goals(measured(PAIR, slow)).values()) == [True, True, False]


def test_goals_of_limited_links() -> None:
    slow = Scenario("slow", HOSTS, (1 << 20,), 1e8)
    fast = Scenario("fast", HOSTS, (1 << 20,), 1e9)
    found = goals(measured(slow, {"topk": 0.09, "powersgd": 0.3}), measured(fast))
    assert found == {
        "slow: topk faster than native, ResNet-18": True,
        "slow: powersgd faster than native, ResNet-18": False,
        "fast: hierarchical faster than a ring round-robin, 1.0 MiB": True,
        "fast: hierarchical by a ring in the order of hosts, 1.0 MiB": True,
        "cost model: median error, limited links and 2 ranks on loopback, from 1 MiB": True,
    }


def test_round_robin_ring_neighbours_are_on_different_hosts() -> None:
    ring = schedule("ring_round_robin", HOSTS)
    for host in HOSTS:
        for rank in host:
            assert {r.send.peer for r in ring.rounds(rank) if r.send}.isdisjoint(host)


def test_report_has_tables_and_plots(tmp_path: Path) -> None:
    path = bench_report.write(tmp_path / "new", [measured(PAIR)])
    text = path.read_text(encoding="utf-8")
    assert "- loopback, 2 ranks: ring by native, 16.0 MiB: 1.00 (goal ≤ 1.3) ok" in text
    assert "halving_doubling" in text
    fp16 = next(line.split() for line in text.splitlines() if line.startswith("fp16"))
    assert fp16[1:7] == ["1,000", "ms", "47", "MB/s", "1.00", "500"]
    assert fp16[-1] == "1.00"
    assert (path.parent / "0.png").stat().st_size > 10_000


@pytest.mark.slow
def test_two_ranks_are_measured(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app,
        ["bench", "collectives", "--ranks", "2", "--sizes", "4KiB", "-o", "json",
         "--report", str(tmp_path)],
    )  # fmt: skip
    assert done.exit_code == 0
    (scenario,) = json.loads(done.stdout)["scenarios"]
    assert {time["method"] for time in scenario["times"]} == {
        "native", "ring", "tree", "halving_doubling", "hierarchical",
    }  # fmt: skip
    assert {sync["method"] for sync in scenario["syncs"]} >= {"unbucketed", "fp16", "topk"}
    assert all(sync["seconds"] >= sync["own_seconds"] > 0 for sync in scenario["syncs"])
    assert set(scenario["links"]) == {"host"}
    assert (tmp_path / "report.md").exists()
