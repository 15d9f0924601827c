"""`trainhall experiment …` against a coordinator without nodes: its jobs wait."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs
from support.cluster.web import FIRST_ADMIN, served
from support.waiting import eventually
from typer.main import get_command

from trainhall.api.app import create_app
from trainhall.api.settings import Settings
from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import CliError, NotFoundError, UsageError, WrongStateError
from trainhall.cli.experiments import follow
from trainhall.cli.experiments.analysis import page
from trainhall.cli.main import app
from trainhall.cli.spec import specs

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
        self.messages = ""
        """What the last command printed on standard error."""

    def __call__(self, *arguments: str) -> str:
        """Return what it prints."""
        self._capsys.readouterr()
        command = ["experiment", *arguments, "--url", self.url]
        get_command(app).main(command, prog_name="trainhall", standalone_mode=False)
        printed = self._capsys.readouterr()
        self.messages = printed.err
        return printed.out

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


def test_benchmark_is_listed_shown_and_analyzed(cli: Cli) -> None:
    space = {"resources.workers": [1, 3]}
    benchmark = {
        **{key: SWEEP[key] for key in ("name", "job")},
        "kind": "benchmark", "space": space, "baseline": {"resources.workers": 1},
    }  # fmt: skip
    planned = cli("create", cli.file(benchmark), "--dry-run")
    assert "PROBLEM" in planned
    assert "training.global_batch_size: " in planned
    experiment = cli.create(benchmark)
    shown, analyzed = cli("show", experiment), cli("analyze", experiment)
    for text in (shown, analyzed):
        assert "WORKERS  " in text
        assert "All rows: strategy ddp" in text
        assert "baseline" in text
        assert "cannot run: training.global_batch_size" in text
    assert "benchmark, grid" in shown
    assert "No combination has a value of samples_per_second" in analyzed
    (_, impossible) = json.loads(cli("analyze", experiment, "-o", "json"))["table"]
    assert (impossible["workers"], impossible["state"]) == (3, "failed")
    assert impossible["samples_per_second"] is None


def test_scaling_study_is_shown_without_a_measured_point(cli: Cli) -> None:
    study = {**{key: SWEEP[key] for key in ("name", "job")}, "kind": "scaling", "scaling": ["weak"]}
    experiment = cli.create({**study, "space": {"resources.workers": [1, 2]}})
    assert "Weak scaling\nWORKERS  POINT" in cli("show", experiment)
    assert "speed-up takes two measured numbers of workers" in cli("analyze", experiment)


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
    assert header.split() == ["ID", "NAME", "KIND", "STATE", "ENDED", "BEST", "AGE", "REASON"]
    assert "0/4" in first


def test_early_stopping_adds_rungs_and_steps(cli: Cli) -> None:
    stopping = {"asha": {"min_steps": 10, "max_steps": 90}}
    experiment = cli.create({**SWEEP, "early_stopping": stopping})
    header, *_ = cli("trials", experiment).splitlines()
    assert header.split()[:5] == ["TRIAL", "JOB", "STATE", "RUNG", "STEP"]
    assert "0 of 360 that all runs in full would take (0 %)" in cli("show", experiment)


def test_trials_of_tpe_are_chosen_later(cli: Cli) -> None:
    sweep = {**SWEEP, "method": "tpe", "trials": 3}
    assert cli("create", cli.file(sweep), "--dry-run") == ""
    assert json.loads(cli("create", cli.file(sweep), "--dry-run", "-o", "json")) == []
    experiment = cli.create(sweep)
    eventually("its job", lambda: cli("trials", experiment, "-o", "name"))
    assert "2 pending, 1 queued" in cli("show", experiment)
    assert len(cli("trials", experiment).splitlines()) == 2


def test_experiment_is_paused_resumed_and_cancelled(cli: Cli) -> None:
    experiment = cli.create(SWEEP)
    paused = f"rates ({experiment})  paused: paused by {FIRST_ADMIN}\n"
    assert cli("pause", experiment[:10]) == paused
    assert cli("resume", experiment, "-o", "name").strip() == experiment
    assert json.loads(cli("cancel", experiment, "-o", "json"))["state"] == "cancelled"
    refused = cli.refused("pause", experiment)
    assert isinstance(refused, WrongStateError)
    assert "it is cancelled, which is final" in refused.message


def test_planned_values_are_shown_as_in_the_file(cli: Cli) -> None:
    space = {"parameters.a": [True, "x", "größe"]}
    job = {**SWEEP["job"], "parameters": {"a": 0}}
    rows = cli("create", cli.file({**SWEEP, "job": job, "space": space}), "--dry-run").splitlines()
    assert [row.split() for row in rows[1:]] == [["1", "true"], ["2", "x"], ["3", "größe"]]


def test_job_may_be_a_file_with_code(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print('x')")
    job = {"name": "x", "code": "code", "script": {"path": "train.py", "args": ["${lr}"]}}
    cli.file(job, "job.yaml")
    sweep = {**SWEEP, "job": "job.yaml", "space": {"parameters.lr": [0.1, 0.2]}}
    experiment = cli.create(sweep)
    spec = json.loads(cli("show", experiment, "-o", "json"))["spec"]
    assert len(spec["job"]["code"]) == 64


def test_sweep_of_a_submitted_job(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('x')")
    job = {"name": "x", "code": ".", "script": {"path": "train.py", "args": ["${lr}"]},
           "parameters": {"lr": 0.1}, "notes": "first"}  # fmt: skip
    spec = specs.load(cli.file(job, "job.yaml"), None)
    with Client(cli.url) as client:
        submitted = specs.submit(spec, client)
    options = ["--from-job", submitted["id"][:8], "--space", "parameters.lr=0.5,0.25"]
    made = json.loads(cli("create", *options, "-o", "json"))
    assert (made["name"], made["spec"]["method"]) == ("x sweep", "grid")
    assert made["spec"]["space"] == {"parameters.lr": [0.5, 0.25]}
    assert made["spec"]["objective"] == {"metric": "loss", "goal": "min", "at": "last"}
    assert made["spec"]["job"]["code"] == submitted["spec"]["code"]
    assert not made["spec"]["job"].get("notes")
    cli("create", "--dry-run", *options[:2], "--space", "parameters.lr=0,1")
    assert "--space parameters.lr: 0,1 are two values, 0 and 1; write 0.1 for one" in cli.messages
    drawn = ["--space", "parameters.lr={log: [0.01, 1]}", "--set", "method=random",
             "--set", "trials=3", "--set", "job.parameters.lr=0.3"]  # fmt: skip
    rows = cli("create", "--dry-run", *options[:2], *drawn).splitlines()
    assert len(rows) == 4
    # A file says the rest, and the job replaces its own.
    file = cli.file({**SWEEP, "space": {"parameters.lr": [1, 2, 3]}})
    assert json.loads(cli("create", file, *options[:2], "-o", "json"))["counts"] == {"pending": 3}


def test_numbers_in_arguments_can_be_swept(cli: Cli) -> None:
    args = ["--epochs", "3", "--lr=1e-4", "--data", "/data", "--tag", "007"]
    with Client(cli.url) as client:
        job = client.submit({"name": "x", "script": {"path": "/train.py", "args": args}})["id"]
    made = json.loads(
        cli("create", "--from-job", job, "--space", "parameters.epochs=1,2", "-o", "json")
    )
    base = made["spec"]["job"]
    assert base["script"]["args"] == ["--epochs", "${epochs}", "--lr=${lr}", *args[3:]]
    assert base["parameters"] == {"epochs": 3, "lr": 1e-4}


def test_sweep_of_a_job_needs_its_space(cli: Cli) -> None:
    with Client(cli.url) as client:
        job = client.submit({"name": "x", "task": {"name": "digits"}})["id"]
    assert "give a FILE with an experiment, or --from-job JOB" in cli.refused("create").message
    refused = cli.refused("create", "--from-job", job)
    assert "as in --space training.learning_rate=VALUE,VALUE" in refused.message
    refused = cli.refused("create", "--from-job", job, "--space", "training.seed")
    assert "--space takes FIELD=VALUE, as in parameters.lr=0.001,0.01" in refused.message


def test_dry_run_refuses_code_that_is_not_stored(cli: Cli) -> None:
    job = {"name": "x", "code": "0" * 64, "script": {"path": "train.py"}}
    sweep = {**SWEEP, "job": job, "space": {"resources.workers": [1]}}
    refused = cli.refused("create", cli.file(sweep), "--dry-run")
    assert refused.message.startswith("job.code: no code with this SHA-256 was uploaded")


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
    refused = cli.refused("create", cli.file(SWEEP["job"]))
    assert "this is a job, not an experiment; submit it with `trainhall submit`" in str(refused)


def test_faults_have_lines_and_nothing_is_uploaded(
    cli: Cli, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("print('x')")
    job = {"name": "x", "code": ".", "script": {"path": "train.py", "args": ["${lr}"]}}
    sweep = {**SWEEP, "job": job, "space": {"parameters.lr": {"log": [0.001, 0.3]}}}
    text = yaml.safe_dump(sweep, sort_keys=False)
    line = next(i for i, each in enumerate(text.splitlines(), 1) if "parameters.lr" in each)
    refused = cli.refused("create", cli.file(sweep))
    assert "sweep.yaml is not a valid experiment" in refused.message
    (detail,) = refused.details
    assert detail.startswith(f"line {line}: space.parameters.lr: is continuous")
    assert detail.endswith('(given: {"log": [0.001, 0.3]})')
    refused = cli.refused("create", cli.file(sweep), "--set", "space.parameters.lr=[]")
    assert refused.details == ["--set space.parameters.lr: is empty: give at least one value"]
    refused = cli.refused("create", cli.file({**sweep, "job": {**job, "priorty": 1}}))
    assert refused.details == ["line 10: job.priorty: unknown key; did you mean 'priority'?"]
    assert "Uploaded" not in capsys.readouterr().err


def test_dry_run_lists_the_trials(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--dry-run", "--set", "space.training.learning_rate=[0.125]", "--set", "repeats=2"]
    header, *rows = cli("create", cli.file(SWEEP), *options).splitlines()
    assert header.split() == ["TRIAL", "learning_rate", "hidden"]
    assert [row.split() for row in rows] == [["1", "0.125", "[32]"], ["2", "0.125", "[64]"]]
    cli("ls", "-o", "name")
    planned = cli("create", cli.file(SWEEP), "--dry-run", "-o", "json", "--set", "trials=3")
    assert [each["number"] for each in json.loads(planned)] == [1, 2, 3]
    refused = cli.refused("create", cli.file(SWEEP), "--set", "job.training.steps=0")
    assert refused.details == ["--set job.training.steps: must be at least 1 (given: 0)"]


def test_dry_run_is_checked_against_the_cluster(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    request = Client.request

    def noted(self: Client, method: str, path: str, **options: Any) -> Any:
        if (method, path) == ("POST", "/experiments"):
            asked.append(options["params"])
            return request(self, method, path, **options) | {"hint": "did you mean loss?"}
        return request(self, method, path, **options)

    monkeypatch.setattr(Client, "request", noted)
    cli("create", cli.file(SWEEP), "--dry-run")
    assert asked == [{"dry_run": "true"}]
    assert "Note: did you mean loss?" in cli.messages


def test_trials_that_never_start_are_named(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    small = {**SWEEP, "space": {"resources.workers": [1, 2]}}
    get_command(app).main(
        ["experiment", "create", cli.file(small), "--dry-run", "--url", cli.url],
        prog_name="trainhall", standalone_mode=False,
    )  # fmt: skip
    printed = capsys.readouterr().err
    assert "The experiment is valid: 2 trials, 2 runs, at most 1 unfinished at a time." in printed
    assert "On the cluster as it is now, 2 trials will never start: " in printed


def test_wait_and_follow_end_with_the_experiment(
    cli: Cli, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = cli.create(SWEEP)
    with Client(url) as client:
        assert follow.wait(client, experiment, 0.01) == 101
        assert "rates (" in capsys.readouterr().err
        cli("cancel", experiment)
        assert follow.wait(client, experiment, None) == 103
        assert f"rates cancelled: cancelled by {FIRST_ADMIN}" in capsys.readouterr().err
        assert follow.until_final(client, experiment) == 103
        assert "4 cancelled" in capsys.readouterr().err


def test_wrong_kind_of_id_is_named(cli: Cli, url: str) -> None:
    experiment = cli.create(SWEEP)
    eventually("its job", lambda: cli("trials", experiment, "-o", "name"))
    (job,) = cli("trials", experiment, "-o", "name").split()
    with Client(url) as client:
        with pytest.raises(NotFoundError, match="is an experiment, not a job"):
            client.job(experiment[:10])
        with pytest.raises(NotFoundError, match="is a job, not an experiment"):
            client.experiment(job)


def test_progress_names_a_missing_objective() -> None:
    found: dict[str, Any] = {
        "counts": {"completed": 1, "pending": 2}, "best": None,
        "reason_code": "trial_not_rated", "reason": "trial 1 has no objective: …",
    }  # fmt: skip
    assert follow._progress(found) == "1 completed, 2 pending; trial 1 has no objective: …"
    assert follow._progress({**found, "reason_code": "trials_run"}) == "1 completed, 2 pending"


def test_wait_ends_once_the_experiment_pauses_itself() -> None:
    found = {"finished_at": None, "reason_code": "paused"}
    assert not follow.has_stopped(found)
    assert follow.has_stopped({**found, "reason_code": "paused_unrated"})


def test_analysis_is_printed(cli: Cli) -> None:
    experiment = cli.create(SWEEP)
    text = cli("analyze", experiment[:8])
    assert text.startswith(f"rates ({experiment})\n\n- The experiment is running: 0 of 4 runs")
    assert "- No run has completed, so no trial is the best." in text
    analysis = json.loads(cli("analyze", experiment, "-o", "json"))
    assert (analysis["experiment_id"], analysis["best"]) == (experiment, None)
    assert yaml.safe_load(cli("analyze", experiment, "-o", "yaml"))["runs"] == 4
    with pytest.raises(NotFoundError):
        cli("analyze", "nothing")


def test_report_is_printed_or_written(cli: Cli) -> None:
    experiment = cli.create(SWEEP)
    assert cli("report", experiment).startswith("# rates\n")
    assert "is running: the report shows the runs that have ended" in cli.messages
    assert json.loads(cli("report", experiment, "--format", "json"))["name"] == "rates"
    file = cli.folder / "report.html"
    assert cli("report", experiment, "--output", str(file)) == ""
    assert file.read_text().startswith("<!doctype html>")
    assert cli("report", experiment, "--format", "csv", "-o", str(file)) == ""
    assert file.read_text().startswith("trial,repeat,job_id,state,training.learning_rate,")
    assert cli("report", experiment, "--format", "json").endswith("}\n")
    assert "report.pdf is none of html, md, json, csv; " in str(
        cli.refused("report", experiment, "--output", "report.pdf")
    )
    assert "cannot write" in str(
        cli.refused("report", experiment, "--output", str(cli.folder / "missing" / "x.md"))
    )


def test_analysis_has_comparisons_and_importance() -> None:
    text = page(
        {
            "name": "rates\x1b[2J",
            "experiment_id": "7c0d93be12f4",
            "findings": ["Trial 1 has the highest eval_accuracy, 0.5."],
            "comparisons": [
                {"field": None, "text": "in the findings"},
                {"field": "training.optimizer", "text": "Trial 1 has 0.5, trial 2 has 0.4."},
            ],
            "importance": {
                "fields": [
                    {"field": "training.learning_rate", "share": 0.75, "interval": [0.5, 0.875],
                     "has_effect": True},
                    {"field": "training.optimizer", "share": 0.25, "interval": [0, 0.5],
                     "has_effect": False},
                ]
            },
        }
    )  # fmt: skip
    assert text.splitlines() == [
        "rates (7c0d93be12f4)",
        "",
        "- Trial 1 has the highest eval_accuracy, 0.5.",
        "",
        "Comparisons",
        "- Trial 1 has 0.5, trial 2 has 0.4.",
        "",
        "Importance",
        "FIELD                   SHARE  95 % INTERVAL  EFFECT",
        "training.learning_rate   75 %   50 % to 88 %  yes",
        "training.optimizer       25 %    0 % to 50 %  none shown",
    ]
