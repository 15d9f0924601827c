"""Names of secrets: each is the environment variable that ranks read the value from."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from trainhall.training.spec.problems import VARIABLE_NAME

MAX_SECRETS = 64
"""Most secrets of a job."""
MAX_NAME = 128
"""Most characters of a secret's name."""
RESERVED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "IFS", "ENV", "BASH_ENV", "LD_*", "DYLD_*",
    "PYTHON*", "TRAINHALL_*", "TORCHELASTIC_*", "RANK", "LOCAL_RANK", "ROLE_RANK", "ROLE_NAME",
    "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
"""Variables that decide what runs or that every rank gets; `*` stands for any characters."""
_NAME = re.compile(VARIABLE_NAME)
_LIKE_A_SECRET = re.compile(
    r"(^|_)(token|secret|passw(or)?d|passphrase|pwd|api_?key|access_key|private_key|secret_key|"
    r"credentials?)(_|$)",
    re.IGNORECASE,
)
_A_PLACE = re.compile(r"_(file|path|dir|url|name)$", re.IGNORECASE)
"""Names of variables that say where a secret is."""


def check_name(name: str) -> str:
    """Check that a secret may have a name.

    Raises:
        ValueError: it may not; says why.
    """
    if len(name) > MAX_NAME or _NAME.fullmatch(name) is None:
        raise ValueError(
            "must be the name of an environment variable: a letter or _, then letters, digits or "
            f"_, at most {MAX_NAME}"
        )
    if any(fnmatchcase(name.upper(), reserved) for reserved in RESERVED):
        raise ValueError("is reserved: ranks get this variable from their host; use another name")
    return name


def _check(name: str) -> str:
    try:
        return check_name(name)
    except ValueError as error:
        raise PydanticCustomError("secret_name", "{why}", {"why": str(error)}) from None


def _once(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))


SecretName = Annotated[str, AfterValidator(_check)]
SecretNames = Annotated[list[SecretName], Field(max_length=MAX_SECRETS), AfterValidator(_once)]


def exposed(variables: Mapping[str, str], field: str) -> Iterator[str]:
    """Yield a warning for each variable whose name looks like that of a secret.

    Args:
        field: the field of the spec that holds them.
    """
    for name, value in variables.items():
        if value and _LIKE_A_SECRET.search(name) and not _A_PLACE.search(name):
            yield (
                f"{field}.{name} looks like a secret, and all who see the job can read it; store "
                f"it with `trainhall secrets set {name}`, and replace it by `secrets: [{name}]`"
            )
