"""`trainhall import tensorboard`: folders of event files become runs, once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cluster.web import served
from support.storage.event_files import append_scalars

from trainhall.api.app import create_app
from trainhall.api.settings import Settings
from trainhall.cli.base.client import Client
from trainhall.cli.base.errors import UsageError
from trainhall.cli.imports import commands
from trainhall.cli.imports.tensorboard_files import read_folder

NAME = "events.out.tfevents.1000.host.7.0"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    settings = Settings(data_dir=tmp_path / "data", auth="none")
    with served(create_app(settings)) as url, Client(url) as made:
        yield made


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with the runs `a` and `b/c`."""
    root = tmp_path / "runs"
    append_scalars(root / "a" / NAME, "train/loss", [(1, 0.5), (2, 0.25)], time=1000)
    append_scalars(root / "a" / f"{NAME}.later", "train/loss", [(3, 0.125)], time=1000)
    append_scalars(root / "b" / "c" / NAME, "train/loss", [(1, 1.0)], time=5000)
    (root / "b" / f"{NAME}.link").symlink_to(root / "a" / NAME)
    return root


def test_folders_become_runs_once(
    client: Client, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = []
    for number in range(2):
        commands.import_tensorboard(str(runs), artifacts=True, project=None, url=client.url)
        printed = capsys.readouterr()
        names = printed.out.split()
        assert len(names) == 2
        assert f"{0 if number else 4} points and {0 if number else 3} files" in printed.err
    job: Any = client.job(names[0])
    assert (job["name"], job["group"], job["state"]) == ("a", "runs", "completed")
    assert client.job(names[1])["name"] == "b/c"
    query = {"run_id": names[0], "metric_key": "train/loss"}
    found = client.send_raw("GET", "/api/2.0/mlflow/metrics/get-history", params=query)
    assert [(p["step"], p["timestamp"], p["value"]) for p in found["metrics"]] == [
        (1, 1_001_000, 0.5),
        (2, 1_002_000, 0.25),
        (3, 1_003_000, 0.125),
    ]


def test_damaged_files_are_imported_up_to_there(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (runs / "a" / NAME).open("ab") as file:
        file.write(bytes(16))
    first, _ = read_folder(runs)
    assert [point.step for _, points in first.metrics() for point in points] == [1, 2, 3]
    assert "is damaged at byte" in capsys.readouterr().err


def test_folders_without_event_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no event files of TensorBoard"):
        list(read_folder(tmp_path))
    with pytest.raises(UsageError, match="there is no folder"):
        list(read_folder(tmp_path / "none"))
