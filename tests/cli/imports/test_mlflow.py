"""`trainhall import mlflow`: stores as MLflow writes them become runs, once."""

import math
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.cluster.web import served
from typer.main import get_command

from trainhall.api.app import create_app
from trainhall.api.settings import Settings
from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import UsageError, WrongStateError
from trainhall.cli.imports import commands
from trainhall.cli.imports.mlflow_files import read_store
from trainhall.cli.main import app

RUN, OTHER = "0123456789abcdef0123456789abcdef", "f" * 32
POINTS = [(1, 1000, 0.5), (2, 2000, 0.25), (2, 2500, 0.125), (3, 3000, math.nan)]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    settings = Settings(data_dir=tmp_path / "data", auth="none")
    with served(create_app(settings)) as url, Client(url) as made:
        yield made


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def folder_store(root: Path) -> Path:
    store = root / "mlruns"
    write(store / "1" / "meta.yaml", "experiment_id: '1'\nlifecycle_stage: active\nname: digits\n")
    run = store / "1" / RUN
    write(
        run / "meta.yaml",
        f"run_id: {RUN}\nrun_name: first\nstatus: 4\nstart_time: 1000\nend_time: 61000\n"
        "lifecycle_stage: active\n",
    )
    lines = "".join(f"{time} {value} {step}\n" for step, time, value in POINTS)
    write(run / "metrics" / "train" / "loss", lines)
    write(run / "params" / "lr", "0.10")
    write(run / "tags" / "team", "a")
    write(run / "tags" / "mlflow.runName", "first")
    write(run / "artifacts" / "plots" / "ü #1?.txt", "hello")
    gone = store / "1" / OTHER
    write(gone / "meta.yaml", f"run_id: {OTHER}\nlifecycle_stage: deleted\nstatus: 3\n")
    return store


def database_store(root: Path) -> Path:
    path = root / "mlflow.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            """
            CREATE TABLE experiments (experiment_id INTEGER, name TEXT, lifecycle_stage TEXT);
            CREATE TABLE runs (run_uuid TEXT, name TEXT, status TEXT, start_time INTEGER,
                end_time INTEGER, artifact_uri TEXT, experiment_id INTEGER, lifecycle_stage TEXT);
            CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT);
            CREATE TABLE tags (key TEXT, value TEXT, run_uuid TEXT);
            CREATE TABLE metrics (key TEXT, value REAL, timestamp INTEGER, run_uuid TEXT,
                step INTEGER, is_nan INTEGER);
            INSERT INTO experiments VALUES (1, 'digits', 'active');
            """
        )
        runs = [
            (RUN, "first", "FAILED", 1000, 61000, "artifacts", 1, "active"),
            (OTHER, "gone", "FINISHED", 0, 1, "", 1, "deleted"),
        ]
        database.executemany("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", runs)
        database.execute("INSERT INTO params VALUES ('lr', '0.10', ?)", [RUN])
        database.execute("INSERT INTO tags VALUES ('team', 'a', ?)", [RUN])
        for step, time, value in POINTS:
            row = ("train/loss", 0.0 if math.isnan(value) else value, time, RUN, step,
                   math.isnan(value))  # fmt: skip
            database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", row)
    write(root / "artifacts" / "plots" / "ü #1?.txt", "hello")
    return path


def history(client: Client) -> list[tuple[int, int, str]]:
    query = {"run_id": RUN, "metric_key": "train/loss"}
    found = client.send_raw("GET", "/api/2.0/mlflow/metrics/get-history", params=query)
    return [(p["step"], p["timestamp"], str(float(p["value"]))) for p in found["metrics"]]


@pytest.mark.parametrize("make", [folder_store, database_store])
def test_stores_become_runs_once(
    client: Client, tmp_path: Path, make: Callable[[Path], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    store = make(tmp_path)
    for number in range(2):
        commands.import_mlflow(str(store), artifacts=True, project=None, url=client.url)
        printed = capsys.readouterr()
        assert printed.out.split() == [RUN]
        assert f"{0 if number else 4} points and {0 if number else 1} files" in printed.err
    job: Any = client.job(RUN)
    assert (job["name"], job["group"], job["state"]) == ("first", "digits", "failed")
    assert (job["parameters"], job["mlflow_tags"]) == ({"lr": 0.1}, {"team": "a"})
    assert (job["ran_seconds"], job["reason_code"]) == (60.0, "run_imported")
    assert history(client) == [(step, time, str(value)) for step, time, value in POINTS]
    outputs = list(client.items(f"/outputs/jobs/{RUN}"))
    assert [(output["path"], output["size"]) for output in outputs] == [
        ("mlflow/plots/ü #1?.txt", 5)
    ]


def test_servers_are_read_by_their_api(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = folder_store(tmp_path)
    commands.import_mlflow(str(store), artifacts=True, project=None, url=client.url)
    old = history(client)
    settings = Settings(data_dir=tmp_path / "other", auth="none")
    with served(create_app(settings)) as url, Client(url) as other:
        commands.import_mlflow(client.url, artifacts=True, project=None, url=url)
        assert history(other) == old
        assert other.job(RUN)["state"] == "failed"
        assert [output["size"] for output in other.items(f"/outputs/jobs/{RUN}")] == [5]


def test_new_points_of_a_run_are_added(client: Client, tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    commands.import_mlflow(str(store), artifacts=False, project=None, url=client.url)
    client.send_raw("POST", "/api/2.0/mlflow/runs/update", json={"run_id": RUN, "run_name": "b"})
    with (store / "1" / RUN / "metrics" / "train" / "loss").open("a") as file:
        file.write("4000 9.0 4\n")
    commands.import_mlflow(str(store), artifacts=False, project=None, url=client.url)
    assert [step for step, _, _ in history(client)] == [1, 2, 2, 3, 4]
    assert client.job(RUN)["name"] == "b"


def test_artifacts_are_those_of_the_run_alone(tmp_path: Path) -> None:
    (run,) = read_store(folder_store(tmp_path))
    assert [each.path for each in run.artifacts()] == ["plots/ü #1?.txt"]
    write(tmp_path / "private" / "key", "secret")
    artifacts = tmp_path / "mlruns" / "1" / RUN / "artifacts"
    artifacts.rename(artifacts.with_name("old"))
    artifacts.symlink_to(tmp_path / "private")
    assert list(run.artifacts()) == []
    path = database_store(tmp_path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE runs SET artifact_uri = NULL")
    assert [list(each.artifacts()) for each in read_store(path)] == [[]]


def test_bytes_that_are_no_text_are_read(tmp_path: Path) -> None:
    store = folder_store(tmp_path)
    (store / "1" / RUN / "params" / "name").write_bytes(b"caf\xe9")
    (run,) = read_store(store)
    assert run.parameters == {"lr": "0.10", "name": "caf\ufffd"}


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "text", "no database")
    write(tmp_path / "empty" / "x", "")
    store = folder_store(tmp_path / "bad")
    write(store / "1" / RUN / "metrics" / "train" / "loss", "1000 x\n")
    for path, says in (
        (tmp_path / "text", "no database of MLflow"),
        (tmp_path / "empty", "no store of MLflow"),
        (tmp_path / "gone", "no file or folder"),
    ):
        with pytest.raises(UsageError, match=says):
            list(read_store(path))
    (run,) = read_store(store)
    with pytest.raises(UsageError, match="line 1"):
        list(run.metrics())


def test_runs_are_shown_and_compared(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = folder_store(tmp_path)
    commands.import_mlflow(str(store), artifacts=False, project=None, url=client.url)
    write(store / "1" / OTHER / "meta.yaml", f"run_id: {OTHER}\nrun_name: second\nstatus: 3\n")
    write(store / "1" / OTHER / "params" / "lr", "0.2")
    commands.import_mlflow(str(store), artifacts=False, project=None, url=client.url)
    capsys.readouterr()
    for arguments, says in (
        (["show", RUN], "run (it runs elsewhere)"),
        (["ls"], "second"),
        (["diff", RUN, OTHER], "parameters.lr"),
    ):
        get_command(app).main([*arguments, "--url", client.url], standalone_mode=False)
        assert says in capsys.readouterr().out, arguments
    with pytest.raises(WrongStateError, match="runs elsewhere"):
        get_command(app).main(["reproduce", RUN, "--url", client.url], standalone_mode=False)


def test_what_cannot_be_stored_is_left_out(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = database_store(tmp_path)
    with closing(sqlite3.connect(store)) as database, database:
        for name in ("n" * 251, "a\tb"):
            database.execute("INSERT INTO params VALUES (?, 'x', ?)", [name, RUN])
            database.execute("INSERT INTO tags VALUES (?, 'x', ?)", [name, RUN])
        for step, time in ((-1, 5), (1, -5)):
            database.execute("INSERT INTO metrics VALUES ('m', 1, ?, ?, ?, 0)", [time, RUN, step])
    commands.import_mlflow(str(store), artifacts=False, project=None, url=client.url)
    printed = capsys.readouterr().err
    assert printed.count("is left out: its name") == 4
    assert "2 points of m have steps or times below 0" in printed
    assert client.job(RUN)["parameters"] == {"lr": 0.1}
