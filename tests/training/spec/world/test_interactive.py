"""Interactive jobs of a spec: they run nothing of their own."""

import pytest

from trainhall.training.spec import SpecError
from trainhall.training.spec.parse import validate_spec


def test_interactive_job_gets_the_waiting_program() -> None:
    spec = validate_spec({"name": "job", "interactive": {}})
    assert spec.interactive is not None
    assert spec.interactive.idle_seconds == 1800
    assert spec.script is not None
    assert spec.script.module == "trainhall.training.process.interactive"
    # As it is stored, and as it was submitted.
    assert validate_spec(spec.model_dump(mode="json")) == spec
    assert "script" not in spec.model_dump(mode="json", exclude_unset=True)


@pytest.mark.parametrize(
    ("program", "field"),
    [({"task": {"name": "digits"}}, "task"), ({"script": {"path": "/train.py"}}, "script")],
)
def test_interactive_job_with_a_program_is_refused(program: dict[str, object], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        validate_spec({"name": "job", "interactive": {}, **program})
    (problem,) = refused.value.problems
    assert problem.field == field
    assert "start programs by `trainhall exec`" in problem.message
