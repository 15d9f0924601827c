"""`code` in git: addresses without passwords, refs that are no options, tokens over https alone."""

from typing import Any

import pytest

from trainhall.training.spec import SpecError
from trainhall.training.spec.parse import validate_spec
from trainhall.training.spec.source.git_code import GitCode, git_code_of

SPEC: dict[str, Any] = {"name": "x", "script": {"path": "train.py"}}


@pytest.mark.parametrize(
    ("code", "scheme"),
    [
        ({"git": "https://git.example/lab/model.git"}, "https"),
        ({"git": "http://127.0.0.1:3000/lab", "token": "LAB"}, "http"),
        ({"git": "ssh://git@git.example:2222/lab/model"}, "ssh"),
        ({"git": "git@git.example:lab/model.git", "ref": "feature/x#2"}, "ssh"),
        ({"git": "file:///srv/git/model.git", "ref": "refs/pull/7/head"}, "file"),
    ],
)
def test_code_in_git_is_accepted(code: dict[str, Any], scheme: str) -> None:
    spec = validate_spec({**SPEC, "code": code})
    assert spec.git_code is not None
    assert spec.git_code.scheme == scheme
    assert (spec.uploaded_code, spec.code_folder) == (None, None)
    stored = spec.model_dump(mode="json")
    assert git_code_of(stored) == spec.git_code
    assert stored["code"]["ref"] == code.get("ref", "HEAD")


@pytest.mark.parametrize(
    ("code", "field", "message"),
    [
        ({"git": "https://ada:hunter2@git.example/lab"}, "code.git", "trainhall secrets set"),
        ({"git": "https://hunter2@git.example/lab"}, "code.git", "trainhall secrets set"),
        ({"git": "ssh://git:hunter2@git.example/lab"}, "code.git", "trainhall secrets set"),
        ({"git": "ext::sh"}, "code.git", "must"),
        ({"git": "--upload-pack=touch"}, "code.git", "must be a git address"),
        ({"git": "-oProxyCommand=touch:x"}, "code.git", "must be a git address"),
        ({"git": "ssh://-oProxyCommand=touch/x"}, "code.git", "must name a host"),
        ({"git": "../model"}, "code.git", "must be a git address"),
        ({"git": "ftp://git.example/lab"}, "code.git", "must begin with https://"),
        ({"git": "https://git.example"}, "code.git", "address of a repository"),
        ({"git": "https://git.example/a\nb"}, "code.git", "without spaces"),
        ({"git": "file:///srv/../etc"}, "code.git", "file:///PATH"),
        ({"git": "file:///srv/%2e%2e/etc"}, "code.git", "file:///PATH"),
        ({"git": "https://git.example/lab", "ref": "--all"}, "code.ref", "a branch, a tag"),
        ({"git": "https://git.example/lab", "ref": "a:b"}, "code.ref", "a branch, a tag"),
        ({"git": "https://git.example/lab", "ref": "a..b"}, "code.ref", "a branch, a tag"),
        ({"git": "https://git.example/lab", "reff": "x"}, "code.reff", "did you mean 'ref'?"),
        ({"git": "http://git.example/lab", "token": "LAB"}, "code.token", "unencrypted"),
        ({"git": "git@git.example:lab", "token": "LAB"}, "code.token", "over https alone"),
        ({"git": "https://git.example/lab", "token": "my token"}, "code.token", "environment"),
        ({}, "code.git", "is missing"),
        (7, "code", "must be a string"),
        ("", "code", "must not be empty"),
    ],
)
def test_wrong_code_is_named(code: Any, field: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        validate_spec({**SPEC, "code": code})
    (problem,) = error.value.problems
    assert problem.field == field
    assert message in problem.message
    assert "hunter2" not in f"{problem.message} {problem.value}"


def test_secrets_of_hosts_include_the_token() -> None:
    code = {"git": "https://git.example/lab", "token": "LAB"}
    spec = validate_spec({**SPEC, "code": code, "secrets": ["HF"]})
    assert (spec.secrets, spec.needed_secrets) == (["HF"], ["HF", "LAB"])
    assert validate_spec({**SPEC, "code": code, "secrets": ["LAB"]}).needed_secrets == ["LAB"]
    assert GitCode(git="https://git.example/lab").path_on_host is None
