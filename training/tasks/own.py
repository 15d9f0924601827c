"""A user's own task: found by name, with its parameters and what it returns checked."""

import copy
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from trainhall.parallelism.declaration import Declaration
from trainhall.parallelism.pipelining.batches import leaves_of, shapes_of
from trainhall.training.common.step_clock import COMPRESSION, HIDDEN, PHASE_NAMES
from trainhall.training.process.user_traceback import UserTraceback
from trainhall.training.spec import JobSpec
from trainhall.training.spec.keys import unknown_key
from trainhall.training.spec.problems import UNKNOWN_KEY, error_message
from trainhall.training.tasks.base import BadDataError, Data, Task, gives_batches

_TAKEN_NAMES = {
    "loss", "learning_rate", "gradient_norm", "samples_per_second", "step_seconds",
    "peak_memory_bytes", "model_flops_utilization", "bubble_fraction", "bubble_fraction_expected",
    "slowest_rank", "slowest_rank_ratio",
    *PHASE_NAMES, HIDDEN, COMPRESSION,
}  # fmt: skip
_TAKEN_BEGINNINGS = ("eval_", "chain_")
"""Prefixes of evaluation's and the hash chain's metrics; `keep_best` chooses by the former."""
_SHOWN_FOLDERS = 4
_SHOWN_MODULES = 12


class BadTaskError(TypeError):
    """A user's class is not the task that it should be; the message says where and why."""


def build_own_task(spec: JobSpec) -> Task:
    """Wrap the user's task that the spec names in checks of what it returns.

    Raises:
        BadTaskError: it cannot be imported, is no `Task`, or has not what a task must have.
        BadDataError: its parameters are wrong, or it has no samples.
    """
    assert spec.task is not None
    kind = load_class(spec.task.name)
    if abstract := sorted(getattr(kind, "__abstractmethods__", ())):
        raise BadTaskError(f"{_at(kind)}: the task has no method {abstract[0]}")
    build: Callable[[Any, JobSpec], Task] = kind
    return CheckedTask(build(checked_params(kind, spec.task.params), spec), spec.task.name)


def load_class(name: str) -> type[Task]:
    """Load the class `package.module:Class`.

    Raises:
        BadTaskError: there is none, or its module fails while it is imported.
    """
    module_name, _, class_name = name.partition(":")
    _must_exist(module_name, name)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise BadTaskError(
            f"task {name} can't be imported: {UserTraceback(name).typed_message(error)}"
        ) from error
    kind = getattr(module, class_name, None)
    if kind is None:
        found = [
            n for n, c in vars(module).items()
            if isinstance(c, type) and issubclass(c, Task) and c is not Task
        ]  # fmt: skip
        others = f"; it has the tasks {', '.join(found)}" if found else ""
        raise BadTaskError(f"{module.__file__} has no class {class_name}{others}")
    if not (isinstance(kind, type) and issubclass(kind, Task)):
        raise BadTaskError(f"{_at(kind)}: {class_name} is not a subclass of trainhall.task.Task")
    return kind


def _must_exist(module_name: str, name: str) -> None:
    """Raise BadTaskError for a module that does not exist; its own imports may fail later."""
    parts = module_name.split(".")
    for i in range(1, len(parts) + 1):
        part = ".".join(parts[:i])
        try:
            found = find_spec(part)
        except Exception:
            # A package above it fails on import, which the import reports better.
            return
        if found is None:
            raise BadTaskError(
                f"task {name}: there is no module {part}; upload its folder with the job's `code`, "
                f"or put it on the agent's PYTHONPATH; looked in {_search_path()}"
            )


def _search_path() -> str:
    prefixes = tuple({sys.prefix, sys.base_prefix})
    folders = [p for p in sys.path if p and not p.startswith(prefixes) and Path(p).is_dir()]
    shown = ", ".join(folders[:_SHOWN_FOLDERS]) or "no folder but the interpreter's own"
    return shown + (" …" if len(folders) > _SHOWN_FOLDERS else "")


def checked_params(kind: type[Task], params: dict[str, Any]) -> Any:
    """Return `params` as the class expects them: an instance of its `Params`, or the mapping.

    Raises:
        BadDataError: naming each wrong parameter.
    """
    model = kind.Params
    if model is None:
        return copy.deepcopy(params)  # a class may change its own
    known = {field.alias or name for name, field in model.model_fields.items()}
    problems = []
    if model.model_config.get("extra") != "allow":
        problems = [
            f"task.params.{key}: {unknown_key(key, known)}" for key in params.keys() - known
        ]
    try:
        checked = model.model_validate(params)
    except ValidationError as error:
        for item in error.errors():
            if (message := error_message(item)) != UNKNOWN_KEY:
                problems.append(f"task.params.{'.'.join(map(str, item['loc']))}: {message}")
    if problems:
        raise BadDataError("; ".join(sorted(problems)))
    return checked


class CheckedTask(Task):
    """A user's task; what it holds and returns is checked, so that mistakes are named as such."""

    def __init__(self, task: Task, name: str) -> None:
        self._own = task
        self._name = name
        self._user_traceback = UserTraceback(name)
        self._shapes: list[tuple[int, ...]] | None = None
        self.train_data = self._checked_data("train_data", getattr(task, "train_data", None))
        if task.eval_data is not None:
            self.eval_data = self._checked_data("eval_data", task.eval_data)
        self.metric_names = self._checked_names(task.metric_names)
        # Wrong ones would fail in the first validation, which may be the last step.
        self.eval_batch_size = task.eval_batch_size
        if not isinstance(self.eval_batch_size, int) or self.eval_batch_size < 1:
            raise BadTaskError(
                f"{_at(type(task))}: eval_batch_size is {self.eval_batch_size!r}; give an integer "
                "above 0"
            )

    def build_model(self) -> nn.Module:
        model = self._own.build_model()
        if not isinstance(model, nn.Module):
            raise self._wrong("build_model", f"returned {_kind(model)}, not a torch.nn.Module")
        if not any(p.requires_grad for p in model.parameters()):
            raise self._wrong("build_model", "returned a model without parameters to train")
        for name in self.declaration().modules:
            self._must_have(model, str(name))
        return model

    def _must_have(self, model: nn.Module, name: str) -> None:
        try:
            model.get_submodule(name)
        except AttributeError:
            raise self._wrong(
                "declaration", f"names {name!r}, but the model has no such module; it has "
                f"{_existing_names(model, name)}"
            ) from None  # fmt: skip

    def declaration(self) -> Declaration:
        declared = self._own.declaration()
        if not isinstance(declared, Declaration):
            raise self._wrong("declaration", f"returned {_kind(declared)}, not a Declaration")
        for layer in declared.layers:
            if isinstance(layer, str):  # whose letters would be taken for names
                raise self._wrong(
                    "declaration", f"gives the layer {layer!r}; each one is a tuple of names, as "
                    f"in ({layer!r},)"
                )  # fmt: skip
        return declared

    def collate(self, samples: Sequence[Any]) -> Any:
        return self._own.collate(samples)

    def loss(self, model: nn.Module, batch: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        shapes = shapes_of(batch)
        self._shapes = self._shapes or shapes
        try:
            returned = self._own.loss(model, batch)
        except Exception as error:
            if shapes != self._shapes:
                where = self._user_traceback.location(error) or self._name
                raise BadDataError(
                    f"{where}: {type(error).__name__}: {error}; {_change(self._shapes, shapes)}"
                ) from error
            raise
        loss, metrics = (returned, ()) if isinstance(returned, Tensor) else self._pair(returned)
        loss = self._scalar("loss", loss)
        if len(metrics) != len(self.metric_names):
            raise self._wrong(
                "loss", f"returned {len(metrics)} metrics, but metric_names has "
                f"{len(self.metric_names)}: {', '.join(self.metric_names) or 'none'}"
            )  # fmt: skip
        named = zip(self.metric_names, metrics, strict=True)
        # One counted in numpy is on the CPU; all of them are read from the device at once.
        metrics = tuple(self._scalar(name, value).to(loss.device) for name, value in named)
        if model.training and not loss.requires_grad:
            raise self._wrong("loss", "returned a loss that depends on no parameter of the model")
        return loss, metrics

    def _pair(self, returned: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        if not (isinstance(returned, tuple | list) and len(returned) == 2):
            raise self._wrong("loss", f"returned {_kind(returned)}, not a pair (loss, metrics)")
        loss, metrics = returned
        return loss, (metrics,) if isinstance(metrics, Tensor) else tuple(metrics)

    def _scalar(self, name: str, value: Any) -> Tensor:
        if not isinstance(value, Tensor):
            raise self._wrong(
                "loss", f"returned {_kind(value)} as {name}, not a tensor; torch.tensor makes one "
                "of a number"
            )  # fmt: skip
        if value.numel() != 1:
            raise self._wrong(
                "loss", f"returned a tensor of shape {list(value.shape)} as {name}, not a scalar; "
                "give the mean over the batch"
            )  # fmt: skip
        return value.reshape(())

    def _checked_data(self, name: str, data: Any) -> Any:
        what = f"{_at(type(self._own))}: {name}"
        if isinstance(data, IterableDataset):
            raise BadTaskError(
                f"{what} is an IterableDataset, which has no position to resume from after a "
                "pause; use a map-style data set"
            )
        whole = gives_batches(data)
        if not (whole or (hasattr(data, "__getitem__") and hasattr(data, "__len__"))):
            raise BadTaskError(
                f"{what} is {_kind(data)}; set it in __init__ to a map-style "
                "torch.utils.data.Dataset, or to an object with `__len__` and `batch(indices)`"
            )
        if len(data) == 0:
            raise BadDataError(f"{what} is empty")
        return CheckedBatches(data, what) if whole else data

    def _checked_names(self, names: Any) -> tuple[str, ...]:
        if not isinstance(names, tuple | list):
            example = names if isinstance(names, str) else "error"
            raise BadTaskError(
                f"{_at(type(self._own))}: metric_names is {names!r}; give a tuple of strings, as "
                f"in ({example!r},)"
            )
        wrong = [n for n in names if not (isinstance(n, str) and n and n.isprintable())]
        taken = [
            n for n in names
            if n in _TAKEN_NAMES or (isinstance(n, str) and n.startswith(_TAKEN_BEGINNINGS))
        ]  # fmt: skip
        if wrong or taken or len(set(names)) != len(names):
            raise BadTaskError(
                f"{_at(type(self._own))}: metric_names are {list(names)!r}; they must be "
                f"different, not empty, and none of {', '.join(sorted(_TAKEN_NAMES))}; "
                f"nor begin with {' or '.join(_TAKEN_BEGINNINGS)}"
            )
        return tuple(names)

    def _wrong(self, method: str, problem: str) -> BadTaskError:
        return BadTaskError(f"{_at(getattr(type(self._own), method))}: {method}() {problem}")


class CheckedBatches:
    """A user's `Data`, whose batches must have as many samples as were asked for."""

    def __init__(self, data: Data, what: str) -> None:
        self.data = data
        self._what = what
        if hasattr(data, "set_epoch"):
            self.set_epoch = data.set_epoch

    def __len__(self) -> int:
        return len(self.data)

    def batch(self, indices: Tensor) -> Any:
        batch = self.data.batch(indices)
        first = next((leaf for leaf in leaves_of(batch) if isinstance(leaf, Tensor)), None)
        if first is None:
            raise BadTaskError(
                f"{self._what}.batch() returned {_kind(batch)}, which holds no tensor"
            )
        if first.dim() == 0 or len(first) != len(indices):
            raise BadDataError(
                f"{self._what}.batch() was asked for {len(indices)} samples and returned a tensor "
                f"of shape {list(first.shape)}; its first dimension must be {len(indices)}"
            )
        return batch


def _existing_names(model: nn.Module, name: str) -> str:
    """Return the modules of the model that stand where one of that name would."""
    inside, prefix = model, ""
    for part in name.split("."):
        child = dict(inside.named_children()).get(part)
        if child is None:
            break
        inside, prefix = child, f"{prefix}{part}."
    found = [f"{prefix}{part}" for part, _ in inside.named_children()]
    shown = ", ".join(found[:_SHOWN_MODULES]) or f"none in {prefix or 'it'}".removesuffix(".")
    return shown + (" …" if len(found) > _SHOWN_MODULES else "")


def _change(before: list[tuple[int, ...]], now: list[tuple[int, ...]]) -> str:
    return f"the shapes of this batch are {_shapes(now)}, those of the first one {_shapes(before)}"


def _shapes(shapes: list[tuple[int, ...]]) -> str:
    return " and ".join(str(list(shape)) for shape in shapes)


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _at(thing: Any) -> str:
    """Return the file and line where a class or function is defined."""
    try:
        return f"{inspect.getsourcefile(thing)}, line {inspect.getsourcelines(thing)[1]}"
    except (OSError, TypeError):
        return getattr(thing, "__qualname__", str(thing))
