"""An experiment as commands take it: a file whose job is written in it, or in a file of its own."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainhall.cli.base.errors import UsageError
from trainhall.cli.spec import specs

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client


def load(file: str) -> tuple[dict[str, Any], Path]:
    """Read an experiment and the folder that its relative paths are taken from; the coordinator
    checks it.

    Raises:
        UsageError: the file can't be read, or is not one object.
    """
    return _read(file, "an experiment"), specs.folder_of(file)


def create(document: Mapping[str, Any], folder: Path, client: "Client") -> Any:
    """Create an experiment, the code of its job uploaded first.

    Raises:
        UsageError: something in it is wrong; every wrong field is listed.
    """
    job, name = document.get("job"), "the job of the experiment"
    if isinstance(job, str):
        path = folder / job
        job, folder, name = _read(str(path), "a job spec"), path.parent, f"the job in {path}"
    if isinstance(job, Mapping):
        spec = specs.of_document(job, {}, folder=folder, name=name, is_base=True)
        job = specs.with_uploaded_code(spec, client)
    return client.request("POST", "/experiments", json={**_as_json(document), "job": job})


def _read(file: str, what: str) -> dict[str, Any]:
    from trainhall.training.spec import SpecError
    from trainhall.training.spec.parse import load_document

    raw, form = specs.read_file(file)
    try:
        return load_document(raw, form, what)
    except SpecError as error:
        raise UsageError(f"{specs.named(file)} is not {what}: {error}") from None


def _as_json(document: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the experiment has a value that JSON cannot express: {error}") from None
    return document
