"""Data sets of a job: what each host has ready, under a name, before its ranks start."""

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from trainhall.training.spec.base import SpecModel, Text
from trainhall.training.spec.problems import DATA_NAME, HEADER_NAME, HEX_SHA256, problem_at

MAX_DATA_SETS = 64
PREFIX = "data."
"""Prefix of the names by which arguments and paths refer to data sets: `${data.NAME}`."""
_REFERENCE = re.compile(rf"\$\{{{re.escape(PREFIX)}({DATA_NAME.strip('^$')})\}}(/.*)?", re.DOTALL)
_SECRET = re.compile(r"\$\{([^}]*)\}")
_PRIVATE = re.compile(r"authorization|cookie|token|secret|key", re.IGNORECASE)
"""Names of headers that prove who one is."""
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        port_is_valid = False
    if not port_is_valid or parts.scheme not in ("http", "https") or not parts.hostname:
        raise PydanticCustomError("data_url", "must be a URL that begins with https:// or http://")
    if parts.username or parts.password:
        raise PydanticCustomError(
            "data_url",
            "may not hold a user or a password, which all who see the job can read; give a secret "
            "in `headers`",
        )
    if any(c.isspace() or not c.isprintable() for c in value):
        raise PydanticCustomError("data_url", "may not hold spaces; write %20")
    return value


def _path(value: str) -> str:
    if not PurePosixPath(value).is_absolute():
        raise PydanticCustomError(
            "data_path",
            "must be an absolute path on every node; `trainhall submit` makes it absolute",
        )
    return value


def _header(value: str) -> str:
    if not value.isascii() or not value.isprintable():
        raise PydanticCustomError("header", "must be printable ASCII")
    return value


class DataSpec(SpecModel):
    """A data set (docs/data.md). Its path is in the variable TRAINHALL_DATA_NAME, with the name in
    capitals and `_` for `-`, and in `trainhall.data(name)`; `${data.NAME}` in `script.args` and in
    the paths of a built-in task stands for it."""

    name: Annotated[str, Field(pattern=DATA_NAME)]
    path: Annotated[Text, Field(min_length=1), AfterValidator(_path)] | None = None
    """File or folder on every node, relative to the spec. Give this or `url`."""
    url: Annotated[Text, Field(min_length=1), AfterValidator(_url)] | None = None
    """File that each node downloads once and keeps, by https or http; needs `sha256`."""
    sha256: Annotated[str, Field(pattern=HEX_SHA256)] | None = None
    """SHA-256 of the file, in hexadecimal. With `path`, the job fails on a node that has another
    file there."""
    unpack: bool = False
    """Unpack the archive of the URL (.zip, .tar, .tar.gz, .tar.bz2, .tar.xz): the data set is the
    folder with its files."""
    headers: dict[
        Annotated[str, Field(pattern=HEADER_NAME)],
        Annotated[Text, AfterValidator(_header)],
    ] = Field(default_factory=dict, max_length=16)
    """Headers of the download. `${NAME}` stands for a secret of the job, as in {Authorization:
    "Bearer ${HF_TOKEN}"}; hosts that the URL redirects to do not get them."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.path is not None and self.url is not None:
            raise problem_at("url", self.url, "path and url exclude each other; give one")
        if self.path is None and self.url is None:
            raise problem_at("path", None, "is missing; give path or url")
        if self.url is not None:
            self._check_url(self.url)
            return self
        for name in ("unpack", "headers"):
            if value := getattr(self, name):
                raise problem_at(name, value, "is for data sets with a url; leave it out")
        return self

    def _check_url(self, url: str) -> None:
        if self.sha256 is None:
            raise problem_at("sha256", None,
                "is missing: nodes keep and verify downloads by it; `curl -L URL | sha256sum` "
                "prints it",
            )  # fmt: skip
        if self.unpack and not self.file_name.lower().endswith(_ARCHIVES):
            raise problem_at("url", url,
                f"must end in {', '.join(_ARCHIVES[:-1])} or {_ARCHIVES[-1]} to be unpacked",
            )  # fmt: skip

    @property
    def variable(self) -> str:
        """Environment variable that holds its path."""
        return variable_of(self.name)

    @property
    def file_name(self) -> str:
        """Last part of the URL's path, by which the download is kept."""
        name = unquote(urlsplit(self.url or "").path).rpartition("/")[2]
        plain = re.sub(r"[^\w.+-]", "_", name, flags=re.ASCII)[-128:].lstrip(".")
        return plain or "data"

    @property
    def secrets(self) -> list[str]:
        """Names of the secrets in its headers."""
        return [name for value in self.headers.values() for name in _SECRET.findall(value)]

    @property
    def exposed_header(self) -> str | None:
        """Warning of a header that looks like a secret; None: there is none."""
        for name, value in self.headers.items():
            if _PRIVATE.search(name) and value and not _SECRET.search(value):
                return (
                    f"data.{self.name}: all who see the job can read the header {name}; store its "
                    "secret with `trainhall secrets set NAME`, and write ${NAME} in its place"
                )
        return None

    def headers_with(self, secrets: Mapping[str, str]) -> dict[str, str]:
        """Return the headers, with the values of secrets.

        Raises:
            KeyError: one of them is not given.
        """
        return {
            name: _SECRET.sub(lambda match: secrets[match[1]], value)
            for name, value in self.headers.items()
        }


def variable_of(name: str) -> str:
    """Return the environment variable that holds a data set's path."""
    return "TRAINHALL_DATA_" + name.upper().replace("-", "_")


def reference_in(path: str) -> str | None:
    """Return the name of the data set that a path begins with, as in `${data.NAME}/train`; None: it
    begins with none."""
    match = _REFERENCE.fullmatch(path)
    return match[1] if match is not None else None


def resolved(path: str, paths: Mapping[str, str]) -> str:
    """Return a path with the data set that it begins with, if any, replaced by its own path."""
    match = _REFERENCE.fullmatch(path)
    return paths[match[1]] + (match[2] or "") if match is not None else path


def undefined_data(name: str, known: Iterable[DataSpec]) -> str:
    """Return the message for a reference to a data set that the spec does not have."""
    names = ", ".join(sorted(each.name for each in known))
    has = f"the data sets are {names}" if names else "the spec has no `data`"
    return f"no data set is called {name}; {has}"
