"""What is known of the generations of an attempt."""

import pytest

from trainhall.cluster.lifecycle.generations import regroups_in_place
from trainhall.training.spec.parse import validate_spec


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "auto", None])
def test_tasks_under_ddp_regroup_in_place(strategy: str | None) -> None:
    what = {"script": {"path": "/a.py"}} if strategy is None else {"task": {"name": "synthetic"}}
    more = {} if strategy is None else {"parallelism": {"strategy": strategy}}
    training = {} if strategy is None else {"training": {"steps": 1}}
    spec = validate_spec({"name": "a", **what, **more, **training})
    assert regroups_in_place(spec.model_dump(mode="json")) == (strategy == "ddp")
