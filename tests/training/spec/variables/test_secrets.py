"""Secrets in a spec: their names, and warnings of values that should be some."""

from typing import Any

import pytest

from trainhall.training.spec import SpecError
from trainhall.training.spec.parse import validate_spec


def spec(**more: Any) -> dict[str, Any]:
    return {"name": "job", "script": {"path": "/train.py"}, **more}


def test_secrets_are_names_without_repetition() -> None:
    assert validate_spec(spec(secrets=["HF_TOKEN", "wandb", "HF_TOKEN"])).secrets == [
        "HF_TOKEN", "wandb",
    ]  # fmt: skip
    assert validate_spec(spec()).secrets == []


@pytest.mark.parametrize(
    "name", ["PATH", "LD_PRELOAD", "TRAINHALL_URL", "trainhall_x", "PYTHONPATH", "RANK"]
)
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match=r"secrets.0: is reserved"):
        validate_spec(spec(secrets=[name]))


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A=B", "É", "A" * 129])
def test_names_are_those_of_variables(name: str) -> None:
    with pytest.raises(SpecError, match="name of an environment variable"):
        validate_spec(spec(secrets=[name]))


def test_variable_and_secret_of_one_name_conflict() -> None:
    script = {"path": "/train.py", "env": {"HF_TOKEN": "canary"}}
    with pytest.raises(SpecError, match=r"script.env.HF_TOKEN: is a secret") as refused:
        validate_spec(spec(script=script, secrets=["HF_TOKEN"]))
    assert "canary" not in str(refused.value.problems)


def test_values_that_look_like_secrets_are_warned_of() -> None:
    env = {
        "HF_TOKEN": "hf_x", "DB_PASSWORD": "x", "OPENAI_API_KEY": "x", "AWS_SECRET_ACCESS_KEY": "x",
        "TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "12", "TOKEN_FILE": "/x", "SECRET": "",
    }  # fmt: skip
    found = validate_spec(spec(script={"path": "/train.py", "env": env})).warnings
    assert [line.split()[0].removeprefix("script.env.") for line in found] == [
        "HF_TOKEN", "DB_PASSWORD", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY",
    ]  # fmt: skip
    assert "`trainhall secrets set HF_TOKEN`" in found[0]
    assert "hf_x" not in found[0]
    variables = {"variables": {"HF_TOKEN": "hf_x", "HF_HOME": "/x"}}
    (warning,) = validate_spec(spec(environment=variables)).warnings
    assert warning.startswith("environment.variables.HF_TOKEN looks like a secret")
