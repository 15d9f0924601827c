"""The environment of a spec: what is refused, and what it means for the ranks."""

from pathlib import Path
from typing import Any

import pytest

from trainhall.training.spec import SpecError
from trainhall.training.spec.parse import parse_spec, validate_spec

SCRIPT = {"name": "job", "code": "a" * 64, "script": {"path": "train.py"}}


@pytest.mark.parametrize(
    ("environment", "field", "message"),
    [
        ({"requirements": ["alpha", "-r x"]}, "requirements", "but has '-r x'"),
        ({"requirements": 3}, "requirements", "a file or a list of packages"),
        ({"requirements": "../x.txt"}, "requirements", "inside the `code` folder"),
        ({"requirements": "a.txt", "project": "."}, "project", "exclude each other"),
        ({"torch": "host"}, "torch", "give requirements, project or python too"),
        ({"image": "a:1", "python": "3.12"}, "image", "its own Python and packages"),
        ({"image": "-v/:/host"}, "image", "must name an image, such as pytorch/pytorch"),
        ({"image": "docker-archive:/etc/x"}, "image", "must name an image"),
        ({"python": "3"}, "python", "must be a version of Python 3, such as 3.12"),
    ],
)
def test_bad_environments_are_refused(
    environment: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(SpecError) as refused:
        validate_spec({**SCRIPT, "environment": environment})
    (problem,) = refused.value.problems
    assert problem.field == f"environment.{field}"
    assert message in f"{problem.message} {problem.value}"


@pytest.mark.parametrize(
    ("environment", "built", "new"),
    [
        ({}, False, False),
        ({"variables": {"HF_HOME": "/x"}}, False, False),
        ({"variables": {"OMP_NUM_THREADS": "2"}}, False, True),
        ({"requirements": ["alpha"]}, True, True),
        ({"python": "3.12"}, True, True),
        ({"image": "registry.lab:5000/team/train:1"}, False, True),
    ],
)
def test_ranks_are_forks_where_that_is_the_same(
    environment: dict[str, Any], built: bool, new: bool
) -> None:
    found = validate_spec({**SCRIPT, "environment": environment}).environment
    assert (found.is_built, found.needs_new_process) == (built, new)


def test_files_without_code_are_the_hosts_own() -> None:
    text = "name: x\nscript: {path: t.py}\nenvironment: {requirements: r.txt}\n"
    spec = parse_spec(text.encode(), "yaml", {}, Path("/lab"))
    assert spec.environment.source == ("requirements", "/lab/r.txt")
    listed = parse_spec(text.replace("r.txt", "[r]").encode(), "yaml", {}, Path("/lab"))
    assert listed.environment.requirements == ["r"]
