"""Mock mode with minutes of history, which take a third of its time; mostly in a fork."""

import uvicorn

from trainhall.cli.main import main as trainhall
from trainhall.cluster.simulator.mock import coordinator, scenario

HISTORY_SECONDS = 300.0
"""Enough for a job that runs, one that completed and one that failed."""


def main() -> None:
    """`trainhall server --mock`."""
    _shorten()
    trainhall()


def with_uvicorn() -> None:
    """`python -m uvicorn api.main:app`."""
    _shorten()
    uvicorn.main()


def _shorten() -> None:
    for module in (coordinator, scenario):
        vars(module)["OPENING_SECONDS"] = HISTORY_SECONDS


if __name__ == "__main__":
    with_uvicorn()
