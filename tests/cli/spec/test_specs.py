"""A wrong job spec: every problem at once, in plain words, with its line."""

from pathlib import Path
from typing import Any

import pytest

from trainhall.cli.base.errors import UsageError
from trainhall.cli.spec.specs import load, of_document, propose_environment, refuse_prepared
from trainhall.client import Client
from trainhall.training.spec import JobSpec

WRONG = """\
name: wrong
task:
  name: digits
  params:
    hidden: [64, 0]
resources:
  workers: 2
  device: gpu
training:
  stepps: 20   # a typo
  precision: bf_16
priority: much
"""


def of_folder(document: dict[str, Any], folder: Path) -> JobSpec:
    return of_document(document, {}, folder=folder)


def usage_error(path: Path, text: str, *overrides: str) -> UsageError:
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        load(str(path), list(overrides))
    return caught.value


def test_spec_problems_have_line_and_allowed_values(tmp_path: Path) -> None:
    error = usage_error(tmp_path / "job.yaml", WRONG)
    assert error.message == f"{tmp_path / 'job.yaml'} is not a valid job spec: 5 problems"
    assert error.details == [
        "line 5: task.params.hidden.1: must be at least 1 (given: 0)",
        "line 8: resources.device: must be one of auto, cpu, cuda (given: gpu)",
        "line 10: training.stepps: unknown key; did you mean 'steps'?",
        "line 11: training.precision: must be one of fp32, bf16, fp16; did you mean bf16? "
        "(given: bf_16)",
        "line 12: priority: must be an integer (given: much)",
    ]


SCRIPT = """\
name: mine
script: {path: /train.py, args: [--lr, "${lr}"]}
parameters: {lr: 0.1, tag: a}
"""


@pytest.mark.parametrize(
    ("value", "advice"),
    [("0,1", ": write 0.1 with a point; `"), ("0.1, 1e-4", "; `trainhall"), ("1,2,3", "; `")],
)
def test_several_numbers_are_no_number(tmp_path: Path, value: str, advice: str) -> None:
    error = usage_error(tmp_path / "job.yaml", SCRIPT, f"parameters.lr={value}")
    (detail,) = error.details
    assert detail.startswith(f"--set parameters.lr: must be one number{advice}")
    assert detail.endswith(f"(given: {value})")


def test_decimal_comma_is_explained(tmp_path: Path) -> None:
    text = "name: x\ntask: {name: digits}\ntraining: {learning_rate: '0,1'}\n"
    error = usage_error(tmp_path / "job.yaml", text)
    assert error.details == [
        "line 3: training.learning_rate: must be a number: write 0.1 with a point (given: 0,1)"
    ]


def test_parameter_of_a_similar_name_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(SCRIPT)
    load(str(path), ["parameters.lrr=0.5", "parameters.tag=a,b", "parameters.lr=auto"])
    noted = capsys.readouterr().err.splitlines()
    assert noted == [
        "Note: --set parameters.lrr: the spec has no parameter lrr yet; did you mean lr?"
    ]
    load(str(path), ["parameters.momentum=0.5", "parameters.lr=0.2"])
    assert capsys.readouterr().err == ""


def test_boolean_is_refused_as_number(tmp_path: Path) -> None:
    text = (
        "name: x\n"
        "task:\n  name: synthetic\n  params: {hidden: [8, true]}\n"
        "training:\n  steps: true\n  learning_rate: false\n  optimizer: yes\n"
        "  reproducible: 3\n"
    )
    assert usage_error(tmp_path / "job.yaml", text).details == [
        "line 4: task.params.hidden.1: must be an integer (given: true)",
        "line 6: training.steps: must be an integer (given: true)",
        "line 7: training.learning_rate: must be a number (given: false)",
    ]
    text = text.replace("steps: true", "steps: 1").replace("learning_rate: false", "seed: 1")
    assert usage_error(tmp_path / "job.yaml", text, "priority=true").details[0] == (
        "--set priority: must be an integer (given: true)"
    )
    assert usage_error(tmp_path / "job.yaml", text).details[1:] == [
        "line 8: training.optimizer: must be one of sgd, adamw (given: true)",
        "line 9: training.reproducible: must be true or false (given: 3)",
    ]


def test_json_has_lines_as_well(tmp_path: Path) -> None:
    text = '{\n\t"name": "x",\n\t"task": {\n\t\t"name": "digit"\n\t}\n}'
    (line,) = usage_error(tmp_path / "job.json", text).details
    assert line.startswith("line 4: task.name: unknown task; known tasks: ")


def test_missing_key_is_reported_at_its_parent(tmp_path: Path) -> None:
    error = usage_error(tmp_path / "job.yaml", "task:\n  params: {}\n")
    assert error.details == ["name: is missing", "line 1: task.name: is missing"]


def test_override_is_blamed_instead_of_line(tmp_path: Path) -> None:
    text = "name: x\ntask: {name: digits}\ntraining:\n  steps: 3\n"
    error = usage_error(tmp_path / "job.yaml", text, "training.steps=none of these", "priority=1.5")
    assert error.details == [
        "--set training.steps: must be an integer (given: none of these)",
        "--set priority: must be an integer (given: 1.5)",
    ]


def test_broken_yaml_is_located(tmp_path: Path) -> None:
    (line,) = usage_error(tmp_path / "job.yaml", "name: x\ntask: {name: digits\n").details
    assert line == "not valid YAML: line 2, column 7: this '{' is not closed"


def test_python_client_errors_omit_cli_options(
    tmp_path: Path,
) -> None:
    document = {"name": "x", "task": {"name": "digits"}, "training": {"steps": 1}}
    file = tmp_path / "job.yaml"
    file.write_text("name: x\ntask: {name: digits}\ntraining:\n  steps: 1\n")
    changes = {"training.lr": 0.1, "training.steps": "many"}
    with Client("http://127.0.0.1:9") as client:
        for spec in (document, file):
            with pytest.raises(UsageError) as caught:
                client.check(spec, changes)
            assert sorted(caught.value.details) == [
                "training.lr: unknown key; did you mean 'learning_rate'?",
                "training.steps: must be an integer (given: many)",
            ]
        with pytest.raises(UsageError) as caught:
            client.check(document, {"": 1})
        assert "--set" not in str(caught.value)


def test_submit_of_script_shows_required_spec(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    with pytest.raises(UsageError, match="is a script; a job needs a spec") as caught:
        load(str(script), None)
    assert "  script: {path: train.py}" in str(caught.value)


@pytest.mark.parametrize(
    ("files", "spec", "said"),
    [
        (["requirements.txt"], {}, "--set environment.requirements=requirements.txt"),
        (["pyproject.toml"], {}, "--set environment.project=."),
        (["pyproject.toml", "sub/requirements.txt"], {"script": {"path": "sub/t.py"}},
         "--set environment.requirements=sub/requirements.txt"),
        (["requirements.txt"], {"environment": {"requirements": ["x"]}}, ""),
        (["notes.txt"], {}, ""),
    ],
)  # fmt: skip
def test_unused_list_of_packages_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    files: list[str],
    spec: dict[str, Any],
    said: str,
) -> None:
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    given = {"name": "job", "code": str(tmp_path), "script": {"path": "t.py"}, **spec}
    propose_environment(of_folder(given, tmp_path))
    err = capsys.readouterr().err
    assert said in err
    assert bool(said) == bool(err)


def test_local_commands_refuse_an_environment(tmp_path: Path) -> None:
    given = {"name": "job", "task": {"name": "digits"}, "environment": {"requirements": ["x"]}}
    with pytest.raises(UsageError, match="`trainhall run` runs in this Python"):
        refuse_prepared(of_folder(given, tmp_path), "run")
    given = {**given, "environment": {}}
    refuse_prepared(of_folder(given, tmp_path), "run")
    with pytest.raises(UsageError, match="makes no data sets ready"):
        refuse_prepared(
            of_folder({**given, "data": [{"name": "x", "path": "/x"}]}, tmp_path), "run"
        )
