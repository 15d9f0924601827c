"""Every scenario of `make chaos` in small: real processes, the same faults, a few times."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chaos.catalogue import SCENARIOS
from chaos.stage import Scenario, Stage

pytestmark = pytest.mark.acceptance
SEED = 1


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with closing(Stage(tmp_path_factory.mktemp("chaos"))) as opened:
        yield opened


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, id=scenario.name, marks=[pytest.mark.slow] * scenario.slow)
        for scenario in SCENARIOS
    ],
)
def test_it_holds(scenario: Scenario, stage: Stage) -> None:
    if why := scenario.cannot():
        pytest.skip(f"NOT PLAYED HERE: {why}")
    report = scenario.run(stage, SEED, scenario.few)
    assert report.problem is None, "\n".join(report.lines())


def test_a_scenario_that_did_nothing_does_not_hold(tmp_path: Path) -> None:
    with closing(Stage(tmp_path)) as stage:
        report = Scenario(name="idle", play=lambda play: None, runs=1, few=1).run(stage, SEED, 1)
    assert "nothing was injected" in (report.problem or "")
