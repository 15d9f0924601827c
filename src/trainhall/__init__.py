"""Trainhall: a self-hosted home for distributed training jobs.

What scripts use of it is here: `init`, `parameters`, `data`, `report`, `log_image` and its like,
`should_stop`, `leave`, `checkpoint`, `on_resize` and `Trainer` (docs/scripts.md); and `Client`,
which drives a coordinator (docs/client.md). Each is imported when it is first asked for, so that a
coordinator and the command line never import what they do not need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from trainhall.client import Client
    from trainhall.training.sdk.api import (
        checkpoint,
        data,
        init,
        leave,
        log_artifact,
        log_figure,
        log_histogram,
        log_image,
        log_table,
        on_resize,
        parameters,
        report,
        resume_own,
        should_stop,
    )
    from trainhall.training.sdk.session import Context
    from trainhall.training.sdk.trainer import Trainer

__all__ = [
    "Client",
    "Context",
    "Trainer",
    "__version__",
    "checkpoint",
    "data",
    "init",
    "leave",
    "log_artifact",
    "log_figure",
    "log_histogram",
    "log_image",
    "log_table",
    "on_resize",
    "parameters",
    "report",
    "resume_own",
    "should_stop",
]

_HOMES = {
    "Client": "trainhall.client",
    "Context": "trainhall.training.sdk.session",
    "Trainer": "trainhall.training.sdk.trainer",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "__version__":
        value: Any = _version()
    else:
        value = getattr(import_module(_HOMES.get(name, "trainhall.training.sdk.api")), name)
    globals()[name] = value
    return value


def _version() -> str:
    # Its import is a third of what `trainhall --help` takes, and a command seldom asks.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trainhall")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0.0.0"
