"""Users' own tasks: how they are built, and the errors of wrong ones."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from support.cluster.attempts import RankServer
from support.tasks import own as own_tasks
from support.tasks.data_sets import in_memory
from torch import Tensor, nn
from torch.utils.data import Dataset
from torch.utils.data.datapipes.map import SequenceWrapper

from trainhall.task import Declaration, Task, TensorData
from trainhall.training.data.batch_reader import Reader, Request
from trainhall.training.process.user_traceback import UserTraceback
from trainhall.training.spec import SpecError
from trainhall.training.spec.parse import validate_spec
from trainhall.training.tasks import build_task
from trainhall.training.tasks.own import BadTaskError, CheckedTask

FILE = own_tasks.__file__


def job(name: str, workers: int = 2, **training: Any) -> dict[str, Any]:
    return {
        "task": {"name": f"support.tasks.own:{name}"},
        "resources": {"workers": workers},
        "training": {"steps": 12, "global_batch_size": 16, **training},
    }


def line_of(text: str, after: str = "") -> int:
    """The number of the first line with `text` after the first one with `after`."""
    lines = Path(FILE).read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if after in line)
    return next(i for i, line in enumerate(lines, 1) if i > start and text in line)


def test_own_task_trains_and_evaluates(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(tmp_path, {**job("Plain"), "checkpoint": {"every_steps": 5}})
    assert attempt.codes == [0, 0], attempt.stderr()
    metrics = attempt.event("completed")["metrics"]
    assert {"loss", "size", "eval_loss", "eval_size"} <= metrics.keys()
    assert [e["data"]["step"] for e in attempt.events(kind="checkpoint")] == [5, 10, 12]
    assert [step for step, _ in attempt.curve("size")] == list(range(1, 13))


def test_named_tuple_batches_work_in_pipeline(ranks: RankServer, tmp_path: Path) -> None:
    spec = job("Named", 2, optimizer="sgd")
    pipeline = {"strategy": "pipeline", "microbatches": 4}
    cut = ranks.run(tmp_path / "cut", {**spec, "parallelism": pipeline})
    assert cut.codes == [0, 0], cut.stderr(1)
    whole = ranks.run(tmp_path / "whole", {**spec, "resources": {"workers": 1}})
    losses, expected = ([loss for _, loss in a.curve("loss")] for a in (cut, whole))
    assert losses == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        (
            "Raises",
            "TypeError",
            ["{file}, line {line}, in loss: ", "tuple indices"],
        ),
        ("RaisesAtFirst", "FileNotFoundError", ["{file}, line {line}, in __init__: no such data"]),
        ("LeavesEarly", "SystemExit", ["{file}, line {line}, in loss"]),
        ("NotANumber", "NonFiniteLossError", ["the loss is nan at step 1"]),
        (
            "NotAScalar",
            "BadTaskError",
            ["loss() returned a tensor of shape [8, 1] as loss", "give the mean"],
        ),
        ("TooFewMetrics", "BadTaskError", ["returned 0 metrics", "has 1: size"]),
        ("Detached", "BadTaskError", ["depends on no parameter"]),
        ("NoModel", "BadTaskError", ["build_model() returned nothing, not a torch.nn.Module"]),
        (
            "Misnamed",
            "BadTaskError",
            [
                "{file}, line {line}: declaration() names '2.down', but the model has no such "
                "module; it has 2.up"
            ],
        ),
        ("NothingToTrain", "BadTaskError", ["without parameters to train"]),
        (
            "Counted",
            "BadTaskError",
            ["extra state (`get_extra_state` of Counting)", "keep it in a buffer"],
        ),
        ("Empty", "BadDataError", ["{file}, line {line}: train_data is empty"]),
        ("NoValidationData", "BadDataError", ["eval_data is empty"]),
        (
            "Different",
            "DatasetMismatchError",
            ["rank 0 has a training set of 64 samples, rank 1 one of 63"],
        ),
        ("NoData", "BadTaskError", ["train_data is nothing; set it in __init__"]),
        ("Endless", "BadTaskError", ["IterableDataset", "map-style"]),
        ("TakenName", "BadTaskError", ["metric_names are ['loss']"]),
        ("TakenTime", "BadTaskError", ["metric_names are ['compression_seconds']"]),
        ("TakenShare", "BadTaskError", ["metric_names are ['bubble_fraction']"]),
        (
            "UnevenSamples",
            "BadDataError",
            ["can't be stacked", "[5] and [1]", "override `collate`"],
        ),
        (
            "ChangingBatches",
            "BadDataError",
            ["in loss: RuntimeError: mat1 and mat2", "this batch are [8, 8]", "first one [8, 4]"],
        ),
        ("TooFewSamples", "BadDataError", ["asked for 8 samples", "[7, 4]", "dimension must be 8"]),
        ("BrokenSamples", "DataReadError", ["in __getitem__: KeyError: \"no column 'price'\""]),
        ("Unfinished", "BadTaskError", ["{file}, line {line}: the task has no method loss"]),
        ("not_a_task", "BadTaskError", ["not_a_task is not a subclass of trainhall.task.Task"]),
        ("Plan", "BadTaskError", ["has no class Plan", "Plain"]),
    ],
)
def test_own_task_errors_name_their_location(
    ranks: RankServer, tmp_path: Path, name: str, kind: str, words: list[str]
) -> None:
    attempt = ranks.run(tmp_path, job(name))
    logs = [attempt.stderr(rank) for rank in (0, 1)]
    assert attempt.codes == [1, 1], logs
    failures = [e["data"] for rank in (0, 1) for e in attempt.events(rank, kind="failure")]
    failure = next((data for data in failures if data["type"] == kind), None)
    assert failure is not None, logs
    for word in words:
        expected = word.replace("{file}", FILE)
        if "{line}" in word:
            first = {"Empty": f"class {name}", "Unfinished": f"class {name}"}.get(name)
            raising = {"Raises": "return batch", "RaisesAtFirst": "raise", "LeavesEarly": "raise"}
            raising["Misnamed"] = "def declaration"
            line = line_of(first) if first else line_of(raising[name], f"class {name}")
            expected = expected.replace("{line}", str(line))
        assert expected in failure["message"]
    assert failure["final"] or kind != "BadTaskError"
    assert not attempt.events(kind="completed")
    # The user's own lines are worth reading, those that have found a mistake are not.
    if name in ("NoData", "TakenName", "Plan"):
        assert "Traceback" not in attempt.stderr()
    elif name in ("Raises", "ChangingBatches"):
        assert "Traceback" in attempt.stderr()


def test_batch_larger_than_own_data_fails_for_good(ranks: RankServer, tmp_path: Path) -> None:
    attempt = ranks.run(tmp_path, job("Plain", 1, global_batch_size=128))
    failure = attempt.event("failure")
    assert failure["message"].startswith("training.global_batch_size is 128, but")
    assert failure["final"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_package.tasks:Mine", ["there is no module no_such_package;", "`code`"]),
        ("support.no_such:Mine", ["there is no module support.no_such;"]),
        (
            "support.tasks.broken:Mine",
            ["broken.py, line 3, in <module>", "No module named 'no_such_library'"],
        ),
    ],
)
def test_own_task_import_error_is_reported(name: str, words: list[str]) -> None:
    with pytest.raises(BadTaskError) as caught:
        build_task(validate_spec({"name": "x", "task": {"name": name}}))
    for word in words:
        assert word in str(caught.value)


def test_own_task_syntax_error_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "half_written.py"
    module.write_text("x = 1\ndef f(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadTaskError) as caught:
        build_task(validate_spec({"name": "x", "task": {"name": "half_written:Mine"}}))
    assert f"{module}, line 2: SyntaxError: " in str(caught.value)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "task.params.folder: is missing"),
        ({"folder": "/x", "hiden": 4}, "task.params.hiden: unknown key; did you mean 'hidden'?"),
        ({"folder": "/x", "size": "many"}, "task.params.size: must be an integer"),
    ],
)
def test_parameters_are_checked_by_the_class(params: dict[str, Any], words: str) -> None:
    spec = {"name": "x", "task": {"name": "support.tasks.own:Ledger", "params": params}}
    with pytest.raises(ValueError) as caught:
        build_task(validate_spec(spec))
    assert str(caught.value) == words


def test_own_task_without_params_class_accepts_any() -> None:
    spec = {"name": "x", "task": {"name": "support.tasks.own:Plain", "params": {"any": [1]}}}
    task: Any = build_task(validate_spec(spec))
    assert task._own.params == {"any": [1]}
    task._own.params["any"].append(2)
    again: Any = validate_spec(spec)
    assert again.task.params == {"any": [1]}, "the spec is no task's to change"


@pytest.mark.parametrize("name", ["a:", ":B", "a.b:", "a b:C", "a..b:C", "a:B:C", "a.b:C.D", "1:B"])
def test_own_task_name_must_be_a_class(name: str) -> None:
    with pytest.raises(SpecError, match=r"must be package\.module:Class"):
        validate_spec({"name": "x", "task": {"name": name}})


def test_documented_task_trains(ranks: RankServer, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "tasks.md").read_text()
    code = tmp_path / "code"
    code.mkdir()
    (code / "line.py").write_text(re.findall(r"```python\n(.*?)```", page, re.S)[0])
    (text,) = [spec for spec in re.findall(r"```yaml\n(.*?)```", page, re.S) if "line:Line" in spec]
    attempt = ranks.run(tmp_path, {**yaml.safe_load(text), "code": str(code)})
    assert attempt.codes == [0], attempt.stderr()
    assert attempt.event("completed")["metrics"]["eval_error"] < 0.3


def test_own_task_error_names_uploaded_path(ranks: RankServer, tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "lab").mkdir(parents=True)
    (code / "lab" / "lines.py").write_text("class Line:\n    pass\n")
    spec = {"name": "x", "code": str(code), "task": {"name": "lab.lines:Lime"}}
    attempt = ranks.run(tmp_path, {**spec, "training": {"steps": 1}})
    assert attempt.event("failure")["message"] == "lab/lines.py has no class Lime"


def test_user_traceback_skips_libraries() -> None:
    with pytest.raises(SpecError) as caught:
        validate_spec({"name": 1})
    where = UserTraceback("mine:Task").location(caught.value)
    assert where is not None
    assert where.startswith(__file__)


class _OneElement(Task):
    metric_names: tuple[str, ...] = ("error",)

    def __init__(self) -> None:
        self.train_data = TensorData(torch.ones(4, 2), torch.ones(4, 1))

    def build_model(self) -> nn.Module:
        return nn.Linear(2, 1)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        away = model(batch[0]) - batch[1]
        return away.square().mean(dim=0), (away.abs().mean(),)


def test_lost_peer_blames_no_line_of_task(ranks: RankServer, tmp_path: Path) -> None:
    spec = {**job("Killed"), "parallelism": {"strategy": "pipeline", "microbatches": 2}}
    attempt = ranks.run(tmp_path, spec)
    assert attempt.codes[0] == 1
    message = attempt.event("failure")["message"]
    assert message.startswith("this rank lost its connection to another rank (Gloo: ")


def test_layer_is_a_tuple_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    layers: Any = ("0", "2")
    monkeypatch.setattr(own_tasks.Named, "declaration", lambda _: Declaration(layers))
    task = CheckedTask(own_tasks.Named({}, None), "support.tasks.own:Named")
    with pytest.raises(BadTaskError, match=r"gives the layer '0'; each one is .*, as in \('0',\)"):
        task.build_model()


@pytest.mark.parametrize(
    ("member", "value", "words"),
    [
        ("metric_names", "f1", "metric_names is 'f1'; give a tuple of strings, as in ('f1',)"),
        ("metric_names", None, "metric_names is None; give a tuple of strings"),
        ("eval_batch_size", 0, "eval_batch_size is 0; give an integer above 0"),
        ("eval_batch_size", "8", "eval_batch_size is '8'; give an integer above 0"),
    ],
)
def test_own_task_members_are_checked_at_start(
    member: str, value: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_tasks.Plain, member, value)
    with pytest.raises(BadTaskError, match=re.escape(words)):
        CheckedTask(own_tasks.Plain({}, None), "support.tasks.own:Plain")


def test_one_element_loss_becomes_scalar() -> None:
    checked = CheckedTask(_OneElement(), "module:Task")
    loss, (error,) = checked.loss(
        checked.build_model(), in_memory(checked.train_data).batch(torch.arange(4))
    )
    assert loss.shape == error.shape == ()


class _CountsOnTheCpu(_OneElement):
    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        return torch.ones((), device="meta", requires_grad=True), (torch.tensor(0.5),)


def test_cpu_metric_is_moved_to_device() -> None:
    checked = CheckedTask(_CountsOnTheCpu(), "module:Task")
    loss, (counted,) = checked.loss(
        nn.Linear(2, 1), in_memory(checked.train_data).batch(torch.arange(4))
    )
    assert counted.device == loss.device == torch.device("meta")


class _MakesBatches(Dataset[Tensor]):
    """As Hugging Face's `datasets.Dataset`."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([float(index)])

    def batch(self, batch_size: int, drop_last_batch: bool = False) -> list[Tensor]:
        raise AssertionError


class _KnowsABatch(_MakesBatches):
    """As sets that keep the size of a batch."""

    batch = 4  # type: ignore[assignment]


@pytest.mark.parametrize(
    "data",
    [
        _KnowsABatch(),
        _MakesBatches(),
        SequenceWrapper([torch.tensor([float(i)]) for i in range(8)]),
    ],
)
def test_foreign_datasets_are_read_per_sample(data: Any) -> None:
    task = _OneElement()
    task.train_data = data
    checked = CheckedTask(task, "module:Task")
    reader = Reader(checked, checked.train_data, 0)
    assert not reader.in_memory
    assert reader.read(Request(0, torch.tensor([3, 1]))).tolist() == [[3.0], [1.0]]


@pytest.mark.parametrize("name", ["eval_loss", "chain_link"])
def test_no_metric_writes_into_the_series_of_others(name: str) -> None:
    task = _OneElement()
    task.metric_names = (name,)
    with pytest.raises(BadTaskError, match="nor begin with eval_ or chain_"):
        CheckedTask(task, "module:Task")
