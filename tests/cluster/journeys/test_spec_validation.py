"""How often a coordinator validates a job's spec."""

import pytest
from support.cluster.simulated import SimulatedCluster
from support.validations import record_validations

from trainhall.cluster.access.roles import DEFAULT_PROJECT
from trainhall.training.spec import parse_spec


async def test_coordinator_validates_a_stored_spec_once(
    cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    validated = record_validations(monkeypatch)
    node = await cluster.add_node("alpha", 2)
    await cluster.add_node("beta", 2)
    submitted = parse_spec(
        '{"name": "n", "script": {"path": "/n.py"}, "resources": {"workers": 4}}'
    )
    assert len(validated) == 1
    view, _ = await cluster.coordinator.jobs.submit(submitted)
    await cluster.run_until(view.id, "running")
    for _ in range(3):
        cluster.coordinator.gateway.wake(node.node_id)
        await cluster.heartbeat()
    stored = submitted.model_copy(update={"project": DEFAULT_PROJECT})
    assert node.running(view.id).assignment.launch.spec == stored
    assert len(validated) == 2, "as it was submitted, and as it is stored"
