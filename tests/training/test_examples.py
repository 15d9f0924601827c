"""Every example of a task trains: a few steps on data of the test's own."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.cluster.attempts import RankServer
from support.storage.data_files import write_cifar10, write_images, write_mnist, write_text

from trainhall.parallelism.plan.devices import Rates
from trainhall.training.planning.planner import parallelism_of, plan
from trainhall.training.spec import JobSpec, parse_spec
from trainhall.training.spec.strategies import with_parallelism

RATES = Rates("test", 1e12, 1e11, 1e10, 1e-5, "made up")
EXAMPLES = Path(__file__).parents[2] / "examples"

# What the example reads, and what makes it short.
TASKS: dict[str, tuple[Callable[[Path], None] | None, dict[str, str]]] = {
    "digits": (None, {}),
    "digits_auto": (None, {}),
    "digits_elastic": (None, {}),
    "digits_fsdp": (None, {}),
    "digits_model": (None, {}),
    "digits_parameter_server": (None, {}),
    "digits_pipeline": (None, {}),
    "digits_reproducible": (None, {}),
    "digits_ring": (None, {}),
    "digits_tensor": (None, {}),
    "digits_topk": (None, {}),
    "synthetic": (None, {"task.params.step_seconds": "0"}),
    "mnist": (lambda root: write_mnist(root / "MNIST" / "raw"), {"task.params.download": "false"}),
    "fashion_mnist": (
        lambda root: write_mnist(root / "FashionMNIST" / "raw"),
        {"task.params.download": "false"},
    ),
    "cifar10": (write_cifar10, {"task.params.download": "false", "training.precision": "fp32"}),
    "image_folder": (write_images, {"task.params.image_size": "16", "task.params.model": "cnn"}),
    "language_model": (lambda root: write_text(root / "text.txt"), {"task.params.size": "tiny"}),
    "own_task": (None, {}),
}


def planned(spec: JobSpec) -> JobSpec:
    """With the strategy that a plan chooses."""
    made = plan(spec, spec.resources.workers, RATES, None)
    assert made.choice is not None
    return with_parallelism(spec, spec.resources.workers, parallelism_of(made.choice))


def test_every_example_is_tried() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.yaml")) == sorted(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_example_trains(ranks: RankServer, tmp_path: Path, name: str) -> None:
    write, overrides = TASKS[name]
    if write is not None:
        write(tmp_path / "data")
        path = "files" if name == "language_model" else "root"
        overrides = {**overrides, f"task.params.{path}": str(tmp_path / "data")}
    short = {"steps": "3", "epochs": "null", "global_batch_size": "8"}
    overrides = {**overrides, **{f"training.{key}": value for key, value in short.items()}}
    spec = parse_spec((EXAMPLES / f"{name}.yaml").read_bytes(), "yaml", overrides, EXAMPLES)
    if spec.is_auto:
        spec = planned(spec)
    attempt = ranks.run(tmp_path, spec.model_dump(mode="json", exclude={"name"}))
    assert attempt.codes == [0] * spec.resources.workers, attempt.stderr()
    assert attempt.event("completed")["steps"] == 3
    assert "eval_loss" in attempt.event("completed")["metrics"]
