"""The secrets of an attempt on their way from the agent to the shim, by a file that is gone as soon
as it is read."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from trainhall.training.link.base import LinkModel
from trainhall.training.link.regular_file import read_regular

MAX_BYTES = 16 * 2**20


class AttemptSecrets(LinkModel):
    """Secrets of an attempt."""

    values: dict[str, str] = Field(repr=False)
    """By the name of their variable."""


def write_secrets(path: Path, values: Mapping[str, str]) -> None:
    """Write the secrets of an attempt to a new file, which its user alone can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(AttemptSecrets(values=dict(values)).model_dump_json())


def take_secrets(path: Path) -> Mapping[str, str]:
    """Read the secrets of an attempt, and remove the file.

    Raises:
        OSError, ValueError: there is none, or it cannot be read.
    """
    try:
        return AttemptSecrets.model_validate_json(read_regular(path, MAX_BYTES)).values
    finally:
        path.unlink(missing_ok=True)
