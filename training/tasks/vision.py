"""Imports torchvision, also where its wheel was built for another torch."""

import importlib
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import torch

from trainhall.training.tasks.base import TaskUnavailableError

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
"""Operators that torchvision registers functions for while it is imported."""

_kept: list[torch.library.Library] = []
"""An operator is gone with the object that defined it."""


def torchvision(module: str) -> Any:
    """Import the module `torchvision.<module>`.

    Data sets, transforms and classification models need none of torchvision's compiled operators.
    Its wheel from a package index is built for CUDA and does not load beside a CPU build of torch;
    then the operators are declared here, without an implementation, and the rest works.

    Raises:
        TaskUnavailableError: torchvision is missing, or does not fit torch; the message says what
            to do.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.submodule_search_locations:
        raise TaskUnavailableError(
            "this task reads its data with torchvision, which is not installed on this host; "
            "install it with: pip install 'trainhall[train]'"
        )
    try:
        if not _kept and not _operators_load(Path(found.submodule_search_locations[0])):
            library = torch.library.Library("torchvision", "FRAGMENT")
            _kept.append(library)
            for schema in _OPERATORS:
                library.define(schema)
        return importlib.import_module(f"torchvision.{module}")
    except Exception as error:
        raise TaskUnavailableError(
            f"torchvision {_version('torchvision')} does not work with torch {torch.__version__}: "
            f"{type(error).__name__}: {error}; install the one made for it with: "
            "pip install --upgrade --force-reinstall torchvision"
        ) from error


def _operators_load(folder: Path) -> bool:
    """Load torchvision's compiled operators; False where they were built for another torch."""
    for library in folder.glob("_C*.so"):
        try:
            torch.ops.load_library(str(library))
        except OSError:
            continue
        return True
    return False


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"
