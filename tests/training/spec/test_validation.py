"""How often a process validates a job's spec, from the launch to the rank."""

from pathlib import Path

import pytest
from support.cluster.simulated import spec
from support.validations import record_validations

from trainhall.cluster.wire.protocol import Assignment
from trainhall.training import rank
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import Launch
from trainhall.training.spec import JobSpec, SpecError, job
from trainhall.training.spec.parse import validate_spec


@pytest.fixture
def validated(monkeypatch: pytest.MonkeyPatch) -> list[JobSpec]:
    """The specs that this process validates from now on."""
    return record_validations(monkeypatch)


def test_agent_shim_and_rank_validate_a_launch_once(
    tmp_path: Path, validated: list[JobSpec]
) -> None:
    folder = AttemptFolder(tmp_path)
    message = Assignment.model_validate(
        {
            "goal": "run",
            "launch": {
                "job_id": "j",
                "attempt": 1,
                "generation": 1,
                "spec": spec(),
                "world_size": 1,
                "node_rank": 0,
                "num_nodes": 1,
                "ranks": [],
                "checkpoint": {"folder": "/c", "upload": False},
            },
        }
    ).model_dump_json()
    validated.clear()
    taken = [Assignment.model_validate_json(message) for _ in range(3)][-1].launch
    replace_json(folder.launch, taken)
    assert Launch.model_validate_json(folder.launch.read_bytes()) == taken
    assert rank.read_launch(folder, 1) == taken
    assert len(validated) == 1


def test_another_document_is_validated(validated: list[JobSpec]) -> None:
    document = {"name": "n", "script": {"path": "/n.py"}, "resources": {"selector": {"1": "x"}}}
    assert validate_spec(document) is validate_spec(dict(document))
    assert validate_spec({**document, "priority": 1}).priority == 1
    with pytest.raises(SpecError, match="selector"):
        validate_spec({**document, "resources": {"selector": {1: "x"}}})
    assert len(validated) == 2


def test_memory_of_specs_is_bounded(validated: list[JobSpec]) -> None:
    for number in range(job.KEPT_SPECS + 5):
        validate_spec({"name": "n", "script": {"path": "/n.py"}, "priority": number})
    assert len(job._VALIDATED) == job.KEPT_SPECS
    large = {"name": "n", "script": {"path": "/n.py", "args": ["x" * 4096] * 17}}
    assert len(repr(large)) > job.KEPT_BYTES
    assert validate_spec(large) not in job._VALIDATED.values()
