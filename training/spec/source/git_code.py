"""Code of a job in a git repository, which hosts clone: its address, and what of it is wanted."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self, cast
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trainhall.training.spec.base import SpecModel, Text
from trainhall.training.spec.problems import problem_at, problems_at, problems_in
from trainhall.training.spec.source.masking import mask_text
from trainhall.training.spec.variables.secrets import SecretName

MAX_URL = 1024
MAX_REF = 255
SCHEMES = ("https", "http", "ssh", "file")
COMMIT = r"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_SSH_ADDRESS = re.compile(r"(?:[\w.-]+@)?[A-Za-z0-9][\w.-]*:(?!/?/)[^\s:][^\s]*", re.ASCII)
"""The short form of an address: `git@host.example:team/model.git`."""
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_REF = re.compile(r"[A-Za-z0-9_][\w./+@#=-]*", re.ASCII)
_FORMS = "https://HOST/PATH, ssh://HOST/PATH or USER@HOST:PATH"


def _check_url(url: str) -> str:
    if not _PRINTABLE.fullmatch(url):
        raise PydanticCustomError("git_url", "must be an address without spaces")
    scheme, separator, _ = url.partition("://")
    if not separator:
        if _SSH_ADDRESS.fullmatch(url):
            return url
        raise PydanticCustomError("git_url", f"must be a git address: {_FORMS}")
    if scheme not in SCHEMES:
        raise PydanticCustomError("git_url", f"must begin with https:// or ssh://, as in {_FORMS}")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise PydanticCustomError("git_url", "{why}", {"why": str(error)}) from None
    if parts.password is not None or (scheme in ("http", "https") and parts.username is not None):
        # The value that is reported goes to logs and terminals.
        raise problem_at((), mask_text(url),
            "may hold no user and no password, which all who see the job could read; store a token "
            "with `trainhall secrets set NAME`, and name it in code.token",
        )  # fmt: skip
    if parts.query or parts.fragment or not parts.path.strip("/"):
        raise PydanticCustomError("git_url", f"must be the address of a repository: {_FORMS}")
    # git decodes %2e and the like; what a project may use is compared with the path as it is here.
    if scheme == "file" and (parts.netloc or "%" in url or ".." in parts.path.split("/")):
        raise PydanticCustomError("git_url", "must have the form file:///PATH, without % and ..")
    if scheme != "file" and not re.fullmatch(r"[A-Za-z0-9[][\w.:[\]-]*", parts.hostname or ""):
        raise PydanticCustomError("git_url", f"must name a host: {_FORMS}")
    return url


def _check_ref(ref: str) -> str:
    if not _REF.fullmatch(ref) or ".." in ref or ref.endswith((".lock", "/", ".")):
        raise PydanticCustomError(
            "git_ref", "must be a branch, a tag or a commit, such as main, v1.2 or refs/pull/7/head"
        )
    return ref


class GitCode(SpecModel):
    """Code in a git repository: the first host that prepares the job resolves `ref` to a commit,
    which all hosts and attempts of the job use (docs/scripts.md)."""

    git: Annotated[str, Field(min_length=1, max_length=MAX_URL), AfterValidator(_check_url)]
    """Address of the repository: https or ssh, without a password."""
    ref: Annotated[str, Field(min_length=1, max_length=MAX_REF), AfterValidator(_check_ref)] = (
        "HEAD"
    )
    """Branch, tag or commit. Default: the repository's default branch."""
    token: SecretName | None = None
    """Name of a secret that holds an access token of the repository's server, for https. The ranks
    do not get it."""
    submodules: bool = False
    """Clone the repository's submodules, too."""

    @model_validator(mode="after")
    def _check_token(self) -> Self:
        if self.token is not None and self.scheme != "https" and not self._is_on_loopback:
            raise problem_at("token", self.token,
                f"is sent over https alone, and the address begins with {self.scheme}; leave it "
                "out: for ssh, hosts use the keys of the user that jobs run as"
                if self.scheme == "ssh" else
                "would be sent unencrypted; give an address that begins with https://",
            )  # fmt: skip
        return self

    @property
    def _is_on_loopback(self) -> bool:
        host = urlsplit(self.git).hostname
        return self.scheme == "http" and host in ("localhost", "127.0.0.1", "::1")

    @property
    def scheme(self) -> str:
        """Return how the repository is reached: `https`, `http`, `ssh` or `file`."""
        scheme, separator, _ = self.git.partition("://")
        return scheme if separator else "ssh"

    @property
    def path_on_host(self) -> str | None:
        """Return the path of a repository that hosts have in a folder; None for others."""
        return urlsplit(self.git).path if self.scheme == "file" else None


Folder = Annotated[Text, Field(min_length=1)]
_FOLDER: TypeAdapter[str] = TypeAdapter(Folder)


def _read_code(value: object) -> Any:
    """Read one of the two forms, so that a mistake is not reported for the other one, too."""
    if value is None or isinstance(value, GitCode):
        return value
    try:
        if isinstance(value, Mapping):
            return GitCode.model_validate(value)
        return _FOLDER.validate_python(value)
    except ValidationError as error:
        raise problems_at(problems_in(error)) from None


Code = Annotated[Folder | GitCode | None, BeforeValidator(_read_code)]


def git_code_of(spec: Mapping[str, Any]) -> GitCode | None:
    """Return the repository that a stored spec names; None: its code is not in git."""
    code = spec.get("code")
    return GitCode.model_validate(cast(Any, code)) if isinstance(code, Mapping) else None
