"""Keys of a job spec, and suggestions for unknown ones."""

import difflib
import itertools
from collections.abc import Collection, Iterator
from typing import get_args

from pydantic import BaseModel

from trainhall.training.spec.job import JobSpec
from trainhall.training.spec.parameters import MAX_NAME, MAX_PARAMETERS, names_used
from trainhall.training.spec.tasks import TASK_PARAMS

Position = tuple[str | int, ...]
"""Position of a value in the document: `("training", "steps")`."""

ALIASES = {
    "lr": "training.learning_rate",
    "batch_size": "training.global_batch_size",
    "max_steps": "training.steps",
    "num_steps": "training.steps",
    "max_epochs": "training.epochs",
    "num_epochs": "training.epochs",
    "grad_clip": "training.gradient_clip",
    "max_grad_norm": "training.gradient_clip",
    "warmup": "training.learning_rate_schedule.warmup_steps",
    "gpus": "resources.workers",
    "num_gpus": "resources.workers",
    "world_size": "resources.workers",
    "max_retries": "recovery.max_restarts",
}
"""Names that other systems use, and that the similarity of strings does not lead to ours."""
_SIMILAR = 0.75
"""Minimum similarity (difflib's ratio) of a suggestion: a wrong one is worse than none."""


def unknown_key_message(where: Position, data: object) -> str:
    """Return the message for the unknown key at `where`: a suggestion, or all known keys."""
    key, inside = str(where[-1]), ".".join(map(str, where[:-1]))
    known = _known(where[:-1], data)
    if (parameter := _parameter_of_script(key, inside, known, data)) is not None:
        return f"unknown key; did you mean 'parameters.{parameter}'?"
    others = {part: model for part, model in _parts() if part != inside}
    meant = ALIASES.get(key) or _only(key, others)
    if meant is None and not _near(key, known):
        elsewhere = {name for model in others.values() for name in model.model_fields}
        near = _near(key, elsewhere)
        meant = _only(near, others) if near else None
    if meant is None:
        return unknown_key(key, known)
    part, _, name = meant.rpartition(".")
    if part == inside:
        return f"unknown key; did you mean {name!r}?"
    return f"unknown key; did you mean {meant!r}{'' if part else ' at the top of the spec'}?"


def near_parameter(name: str, document: object) -> str | None:
    """Return the parameter of a job's document that a name resembles; None if it has the name."""
    known = _parameters(document)
    return None if name in known else _near(name, known)


def _parameter_of_script(key: str, inside: str, known: Collection[str], data: object) -> str | None:
    """Return the parameter that a key at the top or in `training` of a script's spec means: a
    script has no training of ours."""
    if inside not in ("", "training") or not isinstance(data, dict) or not data.get("script"):
        return None
    names = _parameters(data)
    if key in names:
        return key
    if inside == "" and _near(key, known):
        return None
    if near := _near(key, names):
        return near
    meant = ALIASES.get(key) or _only(key, dict(_parts())) or ""
    return key if meant.startswith("training.") else None


def _parameters(document: object) -> set[str]:
    """Return the names of a document's parameters, and those that its script's arguments use: as
    many as a job may have, since each is compared with every unknown key."""
    if not isinstance(document, dict):
        return set()
    parameters, script = document.get("parameters"), document.get("script")
    arguments = script.get("args") if isinstance(script, dict) else None
    listed = arguments if isinstance(arguments, list) else ()
    texts = [each for each in listed if isinstance(each, str)]
    names = parameters if isinstance(parameters, dict) else ()
    used = itertools.chain.from_iterable(map(names_used, texts))
    possible = (name for name in map(str, [*names, *used]) if len(name) <= MAX_NAME)
    return set(itertools.islice(possible, MAX_PARAMETERS))


def unknown_key(key: str, known: Collection[str]) -> str:
    """Return the message for a key that is not among `known`."""
    if near := _near(key, known):
        return f"unknown key; did you mean {near!r}?"
    return f"unknown key; known here: {', '.join(sorted(known))}"


def _near(key: str, known: Collection[str]) -> str | None:
    found = difflib.get_close_matches(key, known, n=1, cutoff=_SIMILAR)
    return found[0] if found else None


def _only(key: str, parts: dict[str, type[BaseModel]]) -> str | None:
    """Return the dotted key if exactly one of the parts has it."""
    having = [part for part, model in parts.items() if key in model.model_fields]
    return ".".join(filter(None, (having[0], key))) if len(having) == 1 else None


def _parts(model: type[BaseModel] = JobSpec, at: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the spec and all of its parts that users write, each with its dotted name."""
    yield at, model
    for name in model.model_fields:
        if model is JobSpec and name == "provenance":
            continue  # commands fill it in
        if (part := _part(model, name)) is not None:
            yield from _parts(part, f"{at}.{name}" if at else name)


def _part(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    annotation = model.model_fields[name].annotation
    kinds = [annotation, *get_args(annotation)]
    return next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)


def _known(where: Position, data: object) -> list[str]:
    model: type[BaseModel] | None = JobSpec
    for i, part in enumerate(where):
        if isinstance(part, int):
            continue  # of a list, whose items are all alike
        if where[: i + 1] == ("task", "params"):
            task = data.get("task", {}) if isinstance(data, dict) else {}
            model = TASK_PARAMS.get(task.get("name", "")) if isinstance(task, dict) else None
            continue
        if model is None or part not in model.model_fields:
            return []
        model = _part(model, str(part))
    return list(model.model_fields) if model else []
