"""`trainhall experiment …` against a coordinator without nodes: its jobs wait."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs
from support.cluster.web import served
from support.waiting import eventually
from typer.main import get_command

from trainhall.api.app import create_app
from trainhall.api.settings import Settings
from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import CliError, NotFoundError, UsageError, WrongStateError
from trainhall.cli.main import app

SWEEP: dict[str, Any] = {
    "name": "rates",
    "kind": "sweep",
    "job": {"name": "digits", "task": {"name": "digits"}},
    "space": {"training.learning_rate": [0.5, 0.25], "task.params.hidden": [[32], [64]]},
    "method": "grid",
    "objective": {"metric": "eval_accuracy"},
    "parallel": 1,
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data")
    settings = Settings(data_dir=folder, database_url=f"sqlite:///{folder}/trainhall.db")
    # Its log would be taken for what a command prints.
    with capture_logs(), served(create_app(settings)) as address:
        yield address


class Cli:
    def __init__(self, url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.url, self.folder, self._capsys = url, folder, capsys

    def __call__(self, *arguments: str) -> str:
        """Return what it prints."""
        self._capsys.readouterr()
        command = ["experiment", *arguments, "--url", self.url]
        get_command(app).main(command, prog_name="trainhall", standalone_mode=False)
        return self._capsys.readouterr().out

    def file(self, document: Any, name: str = "sweep.yaml") -> str:
        path = self.folder / name
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return str(path)

    def create(self, document: Any) -> str:
        return self("create", self.file(document)).strip()

    def refused(self, *arguments: str) -> CliError:
        with pytest.raises(CliError) as refused:
            self(*arguments)
        return refused.value


@pytest.fixture
def cli(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    yield Cli(url, tmp_path, capsys)
    with Client(url) as client:
        for each in client.items("/experiments"):
            if each["finished_at"] is None:
                client.request("DELETE", f"/experiments/{each['id']}")


def test_experiment_is_created_listed_and_shown(cli: Cli) -> None:
    made = json.loads(cli("create", cli.file(SWEEP), "-o", "json"))
    assert made["state"] == "running"
    experiment = made["id"]
    eventually("its job", lambda: cli("trials", experiment, "-o", "name"))
    (job,) = cli("trials", experiment[:8], "-o", "name").split()
    header, *rows = cli("trials", experiment).splitlines()
    titles = ["TRIAL", "JOB", "STATE", "STEP", "eval_accuracy", "learning_rate", "hidden", "REASON"]
    assert header.split() == titles
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "4"]
    assert job in rows[0]
    assert "[64]" in rows[1]
    assert "pending" in rows[1]
    values = [t["values"] for t in yaml.safe_load(cli("trials", experiment, "-o", "yaml"))]
    assert values[0] == {"training.learning_rate": 0.5, "task.params.hidden": [32]}
    page = cli("show", experiment[:8])
    assert "max eval_accuracy, last value" in page
    assert "3 pending, 1 queued" in page
    assert json.loads(cli("show", experiment, "-o", "json"))["id"] == experiment
    assert experiment in cli("ls", "-o", "name").split()
    header, first, *_ = cli("ls").splitlines()
    assert header.split() == ["ID", "NAME", "STATE", "ENDED", "BEST", "AGE", "REASON"]
    assert "0/4" in first


def test_experiment_is_paused_resumed_and_cancelled(cli: Cli) -> None:
    experiment = cli.create(SWEEP)
    assert cli("pause", experiment[:10]) == f"rates ({experiment})  paused: paused by a user\n"
    assert cli("resume", experiment, "-o", "name").strip() == experiment
    assert json.loads(cli("cancel", experiment, "-o", "json"))["state"] == "cancelled"
    refused = cli.refused("pause", experiment)
    assert isinstance(refused, WrongStateError)
    assert "it is cancelled, which is final" in refused.message


def test_job_may_be_a_file_with_code(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print('x')")
    job = {"name": "x", "code": "code", "script": {"path": "train.py", "args": ["${lr}"]}}
    cli.file(job, "job.yaml")
    sweep = {**SWEEP, "job": "job.yaml", "space": {"parameters.lr": [0.1, 0.2]}}
    experiment = cli.create(sweep)
    spec = json.loads(cli("show", experiment, "-o", "json"))["spec"]
    assert len(spec["job"]["code"]) == 64


def test_wrong_experiment_is_refused_by_field(cli: Cli) -> None:
    wrong = {**SWEEP, "space": {"training.learning_rat": [1]}}
    refused = cli.refused("create", cli.file(wrong))
    assert isinstance(refused, UsageError)
    assert "space.training.learning_rat: unknown key; did you mean 'learning_rate'?" in str(refused)
    refused = cli.refused("create", cli.file([1]))
    assert "is not an experiment: an experiment must be an object" in refused.message
    refused = cli.refused("create", cli.file({**SWEEP, "job": {"name": "x"}}))
    assert "the job of the experiment is not a valid job spec" in refused.message
    refused = cli.refused("create", cli.file({**SWEEP, "job": "none.yaml"}))
    assert "there is no file" in refused.message
    assert isinstance(cli.refused("show", "ffffffffffff"), NotFoundError)
