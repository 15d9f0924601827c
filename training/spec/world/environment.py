"""Python environment of a job: packages that hosts install for it, and variables."""

import re
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from trainhall.training.spec.base import SpecModel, Text
from trainhall.training.spec.problems import IMAGE, PYTHON_VERSION, VARIABLE_NAME, problem_at

MAX_REQUIREMENTS = 1024
_REQUIREMENT = re.compile(r"[A-Za-z0-9]")
_READ_AT_START = ("PYTHON*", "LD_*", "MALLOC_*", "OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*",
    "TORCH*", "PYTORCH_*", "CUDA_*", "CUBLAS_*")  # fmt: skip
"""Variables that a process reads once: when it starts, or when it imports torch."""


def _check_requirements(value: object) -> object:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise PydanticCustomError("requirements", "must be a file or a list of packages")
    for each in value:
        if not isinstance(each, str) or "\n" in each or not _REQUIREMENT.match(each):
            # The union of types would have an error for each of them.
            raise PydanticCustomError(
                "requirement",
                "must list packages, such as einops or transformers>=5,<6, but has {given}",
                {"given": repr(each)},
            )
    return value


class EnvironmentSpec(SpecModel):
    """Packages and variables of the ranks (docs/environments.md)."""

    python: Annotated[str, Field(pattern=PYTHON_VERSION)] | None = None
    """Version of Python, such as "3.12" (in quotes). Default: the agent's."""
    requirements: Annotated[
        Annotated[Text, Field(min_length=1)]
        | Annotated[list[Text], Field(max_length=MAX_REQUIREMENTS)]
        | None,
        BeforeValidator(_check_requirements),
    ] = None
    """Packages to install: a file, relative to `code` (`requirements.txt`, or a script with a
    PEP 723 header), or a list such as [einops, "transformers>=5"]. The first host that prepares
    them locks their versions, for all hosts and attempts of the job."""
    project: Annotated[Text, Field(min_length=1)] | None = None
    """Folder with a `pyproject.toml`, relative to `code`, whose dependencies are installed: as its
    `uv.lock` says, if it has one. Give this or `requirements`."""
    image: Annotated[str, Field(pattern=IMAGE, max_length=512)] | None = None
    """Image of a container that the ranks run in, with Podman or Docker; it has Python and all
    packages. The first host that prepares it pins its digest, for all hosts and attempts of the
    job. Give this or the other fields, apart from `variables`."""
    torch: Literal["host", "lock"] | None = None
    """`host`: the ranks use the torch that is installed beside the agent; `lock`: one that is
    installed with the other packages. Default: `host` if the Python version is the agent's."""
    variables: dict[Annotated[str, Field(pattern=VARIABLE_NAME)], Text] = Field(
        default_factory=dict, max_length=256
    )
    """Environment variables of tasks and scripts; those of `script.env` override them."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.project is not None and self.requirements is not None:
            raise problem_at("project", self.project,
                "requirements and project exclude each other; give one")  # fmt: skip
        if self.image is not None and (self.is_built or self.torch is not None):
            raise problem_at("image", self.image,
                "has its own Python and packages: install them in the image, or leave out "
                "image or the fields requirements, project, python and torch")  # fmt: skip
        if self.torch is not None and not self.is_built:
            raise problem_at("torch", self.torch,
                "is for an environment that is installed: give requirements, project or python "
                "too, or leave it out")  # fmt: skip
        return self

    @property
    def is_built(self) -> bool:
        """Return whether hosts install packages for it."""
        return any(x is not None for x in (self.python, self.requirements, self.project))

    @property
    def is_prepared(self) -> bool:
        """Return whether hosts prepare it; else the ranks run in the Python of their agent."""
        return self.is_built or self.image is not None

    @property
    def needs_new_process(self) -> bool:
        """Return whether the ranks cannot be forks of a process that runs already."""
        return self.is_prepared or any(
            fnmatchcase(name, known) for name in self.variables for known in _READ_AT_START
        )

    @property
    def source(self) -> tuple[str, str] | None:
        """Return the field that names a file or folder, and its value; None: neither is given."""
        if self.project is not None:
            return "project", self.project
        return ("requirements", self.requirements) if isinstance(self.requirements, str) else None

    def source_in(self, code: str | None) -> PurePosixPath | None:
        """Return the path of that file or folder on a host, where the job's code is in `code`."""
        return PurePosixPath(code or "/", self.source[1]) if self.source is not None else None
