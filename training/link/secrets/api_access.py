"""Access of an attempt to the coordinator's API, where its spec asks for it (`api_token`)."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from trainhall.training.link.base import LinkModel
from trainhall.training.link.regular_file import read_regular

MAX_BYTES = 64 * 1024
TOKEN_VARIABLE = "TRAINHALL_TOKEN"


class ApiAccess(LinkModel):
    """Address of the coordinator, and the attempt's own token."""

    url: str
    token: str = Field(repr=False)
    tls_ca: str | None = None
    """Authority to verify the coordinator with, as `sha256:` and its fingerprint; None: public
    ones."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables by which commands and `trainhall.Client` find it."""
        found = {"TRAINHALL_URL": self.url, TOKEN_VARIABLE: self.token}
        return found if self.tls_ca is None else {**found, "TRAINHALL_TLS_CA": self.tls_ca}


def write_api_access(path: Path, access: ApiAccess) -> None:
    """Write the access of an attempt to a new file, which its user alone can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(access.model_dump_json())


def load_api_access(path: Path) -> ApiAccess | None:
    """Read the access of an attempt; None: it has none, or has replaced the file."""
    try:
        return ApiAccess.model_validate_json(read_regular(path, MAX_BYTES))
    except (OSError, ValueError):
        return None
