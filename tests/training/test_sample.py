"""Text from a language model's checkpoint."""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cluster.attempts import RankServer
from support.storage.data_files import write_text
from typer.testing import CliRunner

from trainhall.cli.base.errors import CliError, UsageError
from trainhall.cli.checkpoints import sample as command
from trainhall.cli.checkpoints.files import newest_below
from trainhall.cli.main import app
from trainhall.training import sample
from trainhall.training.checkpoint.format.errors import (
    BadCheckpointError,
    Problem,
    StateMismatchError,
)
from trainhall.training.checkpoint.format.manifest import read_files, verify_folder
from trainhall.training.checkpoint.loading import load_model
from trainhall.training.spec.models import Shape
from trainhall.training.tasks.gpt import GPT


@pytest.fixture(scope="module")
def trained(ranks: RankServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints of steps 2 and 4 of a tiny model."""
    folder = tmp_path_factory.mktemp("language")
    write_text(folder / "text.txt")
    params = {"files": str(folder / "text.txt"), "size": "tiny", "context": 16}
    attempt = ranks.run(
        folder,
        {
            "task": {"name": "language_model", "params": params},
            "training": {"steps": 4, "global_batch_size": 8},
            "checkpoint": {"every_steps": 2},
        },
    )
    assert attempt.codes == [0], attempt.stderr()
    return folder


def write(model: GPT, prompt: bytes, length: int, temperature: float, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return list(
        sample.continuation(model, prompt, length, temperature=temperature, generator=generator)
    )


def test_checkpoint_is_enough_to_write_text(trained: Path) -> None:
    model = sample.read_model(trained / "checkpoints" / "step-00000004-a1-g1")
    # Longer than the context, so that the window moves.
    text = write(model, b"to be", 40, 1.0)
    assert len(text) == 40
    assert all(0 <= byte < 256 for byte in text)
    assert text == write(model, b"to be", 40, 1.0)
    assert text != write(model, b"to be", 40, 1.0, seed=1)
    coldest = write(model, b"to be", 10, 0.0)
    assert coldest == write(model, b"to be", 10, 0.0, seed=1)


def test_temperature_zero_takes_the_likeliest_byte() -> None:
    torch.manual_seed(0)
    model = GPT(Shape(layers=1, heads=1, width=8, context=4, vocabulary=300)).eval()
    with torch.no_grad():
        (first,) = write(model, b"ab", 1, 0.0)
        assert first == model(torch.tensor([[97, 98]]))[0, -1, :256].argmax().item()
        (empty,) = write(model, b"", 1, 0.0)
        assert empty == model(torch.tensor([[10]]))[0, -1, :256].argmax().item()


def test_model_of_another_shape_is_refused(trained: Path) -> None:
    folder = trained / "checkpoints" / "step-00000004-a1-g1"
    with pytest.raises(StateMismatchError, match=r"positions.weight is \[16, 64\], not \[8, 64\]"):
        load_model(folder, GPT(Shape(layers=2, heads=2, width=64, context=8)))
    with pytest.raises(StateMismatchError, match=r"blocks\.2\..* is not there"):
        load_model(folder, GPT(Shape(layers=3, heads=2, width=64, context=16)))


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["sample", *arguments])


def test_sample_writes_prompt_and_continuation(
    trained: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done = run(str(trained), "--prompt", "-- to be, é", "--length", "5", "--temperature=0")
    assert done.exception is None, done.exception
    prompt, step = "-- to be, é".encode(), "step-00000004-a1-g1"
    model = sample.read_model(trained / "checkpoints" / step)
    expected = prompt + bytes(write(model, prompt, 5, 0.0)) + b"\n"
    assert capfd.readouterr().out.encode() == expected


def test_sample_ends_quietly_when_its_reader_leaves(trained: Path) -> None:
    folder = trained / "checkpoints" / "step-00000004-a1-g1"
    command = [sys.executable, "-m", "trainhall.training.sample", str(folder), "--length=1000000"]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    assert len(writer.stdout.read(10)) == 10
    writer.stdout.close()
    _, errors = writer.communicate()
    assert (writer.returncode, errors) == (0, b"")


@pytest.mark.parametrize(
    ("folder", "step"), [("", 4), ("checkpoints", 4), ("checkpoints/step-00000002-a1-g1", 2)]
)
def test_sample_accepts_any_folder_with_checkpoints(trained: Path, folder: str, step: int) -> None:
    assert newest_below(trained / folder).name == f"step-{step:08d}-a1-g1"


def test_sample_refuses_other_models(ranks: RankServer, tmp_path: Path) -> None:
    spec = {"task": {"name": "digits"}, "training": {"steps": 1}}
    ranks.run(tmp_path, spec)
    done = run(str(tmp_path))
    assert isinstance(done.exception, CliError)
    assert "is of the task digits; only the task language_model" in str(done.exception)


def test_sample_reports_a_damaged_checkpoint(trained: Path, tmp_path: Path) -> None:
    source = trained / "checkpoints" / "step-00000004-a1-g1"
    copy = tmp_path / source.name
    copy.mkdir()
    for file in source.iterdir():
        data = file.read_bytes()
        (copy / file.name).write_bytes(data if file.suffix == ".json" else data[:-1])
    with pytest.raises(BadCheckpointError, match="expected"):
        sample.read_model(copy)


@pytest.mark.parametrize("source", ["", "./gone", "/no/such/folder"])
def test_sample_reports_a_missing_folder(source: str) -> None:
    done = run(source)
    assert isinstance(done.exception, UsageError)
    assert "there is no folder" in str(done.exception)


def test_sample_reports_an_empty_folder(tmp_path: Path) -> None:
    assert "there is no checkpoint in" in str(run(str(tmp_path)).exception)


class Coordinator:
    """Knows one job, and gives out the files of its checkpoints."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.known: list[dict[str, Any]] = []
        self.fetched: list[str] = []
        self.spec: dict[str, Any] = {"task": {"name": "language_model"}}

    def __enter__(self) -> "Coordinator":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def job(self, reference: str) -> dict[str, Any]:
        return {"id": "3f2a9c51d07b", "name": "play", "spec": self.spec}

    def items(self, path: str) -> list[dict[str, Any]]:
        assert path == "/checkpoints/jobs/3f2a9c51d07b"
        return self.known

    def get(self, path: str) -> dict[str, Any]:
        files = read_files(self.source / self._name(path))
        return {"items": [file.model_dump() for file in files]}

    def stream(self, path: str) -> Iterator[bytes]:
        self.fetched.append(path)
        yield (self.source / self._name(path) / path.rpartition("/")[2]).read_bytes()

    def _name(self, path: str) -> str:
        identity = path.split("/")[2]
        return next(Path(c["location"]).name for c in self.known if c["id"] == identity)


@pytest.fixture
def coordinator(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """With two checkpoints of a job in its store; it gives out what lies in `store`."""
    shutil.copytree(trained / "checkpoints", tmp_path / "store")
    made = Coordinator(tmp_path / "store")
    for step in (4, 2):
        location = f"checkpoints/3f2a9c51d07b/step-{step:08}-a1-g1"
        made.known.append(
            {"id": f"c{step}", "step": step, "location": location, "state": "committed"}
        )
    monkeypatch.setattr(command, "connect", lambda url: made)
    monkeypatch.setenv("TRAINHALL_DATA_DIR", str(tmp_path / "none"))
    return made


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[Problem]]]:
    """The folders from which text was written instead, and what was wrong with them."""
    found: list[tuple[str, list[Problem]]] = []

    def write(module: str, folder: str, *options: str) -> None:
        found.append((folder, verify_folder(Path(folder))))

    monkeypatch.setattr(command, "run_module", write)
    return found


def test_sample_fetches_a_jobs_checkpoint(
    coordinator: Coordinator, sampled: list[tuple[str, list[Problem]]]
) -> None:
    done = run("3f2a")
    assert done.exception is None, done.exception
    assert "Downloading checkpoint c4 of step 4" in done.output
    ((folder, problems),) = sampled
    assert (Path(folder).name, problems) == ("step-00000004-a1-g1", [])
    assert not Path(folder).exists(), "the copy goes when it is not needed any more"
    assert {path.split("/")[2] for path in coordinator.fetched} == {"c4"}
    # One that is given up is not the newest any more.
    coordinator.known[0]["state"] = "deleting"
    assert "of step 2" in run("3f2a").output
    coordinator.known.clear()
    assert "job play (3f2a9c51d07b) has no checkpoint yet" in str(run("3f2a").exception)


def test_sample_reads_a_visible_checkpoint_directly(
    coordinator: Coordinator, tmp_path: Path, sampled: list[tuple[str, list[Problem]]]
) -> None:
    data, name = tmp_path / "data", "step-00000004-a1-g1"
    (data / "checkpoints").mkdir(parents=True)
    (data / "checkpoints" / "3f2a9c51d07b").symlink_to(coordinator.source)
    assert run("3f2a", "--data-dir", str(data)).exception is None
    coordinator.known[0]["location"] = str(coordinator.source / name)
    assert run("3f2a").exception is None
    stored = data / "checkpoints" / "3f2a9c51d07b" / name
    assert sampled == [(str(stored), []), (str(coordinator.source / name), [])]
    assert coordinator.fetched == []


def test_sample_refuses_a_damaged_download(coordinator: Coordinator) -> None:
    (coordinator.source / "step-00000004-a1-g1" / "state.json").write_bytes(b"{}")
    done = run("3f2a", "--length", "5")
    assert "state.json of checkpoint c4 arrived damaged: its SHA-256 is" in str(done.exception)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"task": {"name": "digits"}}, "trains the task digits; only the task"),
        ({"script": {"path": "train.py"}, "task": None}, "does not know a script's model"),
    ],
)
def test_sample_refuses_other_jobs_before_download(
    coordinator: Coordinator, spec: dict[str, Any], message: str
) -> None:
    coordinator.spec = spec
    assert message in str(run("3f2a").exception)
    assert coordinator.fetched == []


def test_sample_removes_its_copy_when_ended(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ended(module: str, *arguments: str) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(command, "run_module", ended)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = run("3f2a")
    assert done.exit_code == 128 + signal.SIGTERM
    assert list(tmp_path.glob("trainhall-*")) == []
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_small_model_writes_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    small = GPT(Shape(layers=1, heads=1, width=8, context=4))
    assert sample.num_threads(small) == 1
    monkeypatch.setattr(sample, "_FEW_PARAMETERS", 1)
    assert sample.num_threads(small) == 8
    monkeypatch.undo()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert sample.num_threads(small) == torch.get_num_threads()


def test_sample_reports_missing_torch(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainhall.cli.base.extra.find_spec", lambda name: None)
    assert "pip install 'trainhall[train]'" in str(run(str(trained)).exception)
