"""Gradients are asked for while a job runs, and the answer survives whoever dies in between."""

from typing import Any

import pytest
from support.cluster.cluster import Cluster
from support.waiting import eventually

pytestmark = pytest.mark.acceptance


# Of an agent's end the coordinator's database sees nothing.
@pytest.mark.parametrize("killed_cluster", ["sqlite"], indirect=True)
def test_asked_for_while_the_agent_is_killed(cluster: Cluster) -> None:
    job_id = cluster.submit(
        {
            "name": "paced",
            "task": {"name": "synthetic", "params": {"step_seconds": 0.1, "hidden": [8]}},
            "resources": {"workers": 2},
            "training": {
                "steps": 100_000, "global_batch_size": 32, "capture_gradients_every_steps": 10,
            },
        }
    )  # fmt: skip
    path = f"/training/jobs/{job_id}/gradients"
    cluster.wait_for_step(job_id, 12)
    cluster.agent.kill()
    assert cluster.post(path) == {"asked": 1, "answered": 0}
    cluster.agent.start()

    def answered() -> Any:
        history = cluster.get(path)
        return history if history["answered"] == 1 else None

    history = eventually("an answer", answered)
    assert history["names"] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    (asked,) = [each for each in history["steps"] if each["request"] == 1]
    regular = [each["step"] for each in history["steps"] if not each["request"]]
    assert regular == list(range(10, regular[-1] + 1, 10))

    def measured() -> Any:
        """What the metrics say of the same step: told by another way, and maybe later."""
        return dict(cluster.points(job_id, "gradient_norm")).get(asked["step"])

    total = sum(norm**2 for norm in asked["norms"]) ** 0.5
    assert total == pytest.approx(eventually("its norm as a metric", measured), rel=1e-4)
    one = cluster.get(f"{path}/{asked['step']}")
    assert [entry["name"] for entry in one["entries"]] == history["names"]
    assert sum(one["entries"][0]["histogram"]["counts"]) > 0
    assert cluster.job(job_id)["attempt"] == 1, "its ranks ran on"
