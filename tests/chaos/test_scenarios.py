"""Every scenario of `make chaos` in small: real processes, the same faults, a few times."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chaos import clusters
from chaos.catalogue import SCENARIOS
from chaos.stage import Scenario, Stage

pytestmark = pytest.mark.acceptance
SEED = 1


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with closing(Stage(tmp_path_factory.mktemp("chaos"), forked=True)) as opened:
        yield opened


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, id=scenario.name, marks=[pytest.mark.slow] * scenario.slow)
        for scenario in SCENARIOS
    ],
)
def test_it_holds(scenario: Scenario, stage: Stage) -> None:
    if why := scenario.obstacle():
        pytest.skip(f"NOT PLAYED HERE: {why}")
    report = scenario.run(stage, SEED, scenario.few)
    assert report.problem is None, "\n".join(report.lines())


def test_machine_without_memory_limits_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "why_not_root", lambda: None)
    monkeypatch.setattr(clusters, "_GROUPS", tmp_path)
    assert clusters.why_no_memory_limit() == f"there are no control groups in {tmp_path}"
    (tmp_path / "cgroup.procs").touch()
    assert clusters.why_no_memory_limit() == "its control groups do not limit memory"
    assert [path.name for path in tmp_path.iterdir()] == ["cgroup.procs"]


def test_a_scenario_that_did_nothing_does_not_hold(tmp_path: Path) -> None:
    with closing(Stage(tmp_path)) as stage:
        report = Scenario("idle", lambda play: None, 1).run(stage, SEED, 1)
    assert "nothing was injected" in (report.problem or "")
