"""What ranks that regroup in place know of the links between them."""

from pathlib import Path

import pytest
from support.cluster.regroup import elastic
from support.holds import STEPS, Gate


@pytest.mark.processes
def test_links_are_measured_once_although_the_reporter_dies(tmp_path: Path, gate: Gate) -> None:
    spec = {
        "task": gate.task("digits", hidden=[16]),
        "parallelism": {"gradient_sync": {"measure_links": True}},
        "training": {"steps": STEPS, "global_batch_size": 48},
    }
    with elastic(tmp_path) as start:
        run = start(spec, 3)
        run.reach(5)
        run.kill(0)
        run.wait_for_failed_ranks(0)
        run.regroup([0, 1, 2])
        gate.open()
        completed = run.result()
    (event,) = run.events("network")
    assert completed["network"] == event
