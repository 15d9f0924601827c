"""The Python environment of an attempt, as rank 0 reports it at its start."""

from typing import Annotated

from pydantic import Field, StringConstraints

from trainhall.training.link.base import LinkModel

MAX_PACKAGES = 2000


def _text(max_length: int) -> StringConstraints:
    return StringConstraints(min_length=1, max_length=max_length, pattern=r"^[^\x00-\x1f\x7f]+$")


class Packages(LinkModel):
    python: Annotated[str, _text(32)]
    os: Annotated[str, _text(256)]
    cuda: Annotated[str, _text(32)] | None = None
    """Version of CUDA that torch was built for; None: a CPU build, or no torch."""
    driver: Annotated[str, _text(32)] | None = None
    """Version of the host's NVIDIA driver; None: it has none."""
    packages: Annotated[
        dict[Annotated[str, _text(128)], Annotated[str, _text(64)]], Field(max_length=MAX_PACKAGES)
    ]
    """Versions by normalized name, as in `{"torch": "2.12.0+cu126"}`."""
