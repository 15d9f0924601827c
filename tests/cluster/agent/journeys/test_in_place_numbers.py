"""Numbers that are none, in steps of which nobody had told yet when the ranks regrouped."""

from pathlib import Path

import pytest
from support.cluster.regroup import elastic

from trainhall.training.checkpoint.format.names import scan


@pytest.mark.processes
@pytest.mark.parametrize("devices", [[1], [0, 1]], ids=["without a rank", "with another one"])
def test_regroup_flushes_rows_before_the_final_save(tmp_path: Path, devices: list[int]) -> None:
    params = {"by": 0, "at": "computing", "before": 19, "poisoned": 17}
    spec = {
        "task": {"name": "support.tasks.dying:PoisonedTask", "params": params},
        "training": {"steps": 40, "global_batch_size": 64, "optimizer": "sgd"},
        # Rank 0 alone knew whether it was written: the others save behind the regrouping.
        "checkpoint": {"every_steps": 14},
    }
    with elastic(tmp_path) as start:
        run = start(spec, 2)
        run.reach(18)
        run.wait_for_failed_ranks(0)
        run.regroup(devices)
        status = run.wait()
    assert status.outcome == "failed"
    assert status.failure is not None
    assert "the loss is nan at step 17; the newest checkpoint before it" in status.failure.message
    assert {found.name.step for found in scan(run.checkpoints)} <= {14}
    assert 17 in run.job_wide("loss"), "it is told as any other step"
