"""Program of a job: a task or a script."""

import difflib
import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from trainhall.training.spec.base import Name, SpecModel, Text
from trainhall.training.spec.problems import VARIABLE_NAME, problem_at, problems_at, problems_in
from trainhall.training.spec.tasks import TASK_PARAMS, TaskParams

_CLASS_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def _module_name(value: str) -> str:
    if not all(part.isidentifier() for part in value.split(".")):
        raise PydanticCustomError("module_name", "must be a module name, such as package.module")
    return value


def _program(value: str) -> str:
    if "/" in value and not PurePosixPath(value).is_absolute():
        raise PydanticCustomError(
            "program", "must be an absolute path, or a program on the host's PATH"
        )
    return value


class TaskSpec(SpecModel):
    """Model, data and loss under one name (docs/tasks.md)."""

    name: Name
    """A built-in task, or your own as `package.module:Class`."""
    params: dict[str, Any] = Field(default_factory=dict)
    """The task's parameters. Those of your own class are checked on the nodes."""

    @property
    def is_own(self) -> bool:
        """Return whether the name is a user's class."""
        return ":" in self.name

    @model_validator(mode="after")
    def _check_params(self) -> Self:
        if self.is_own:
            if not _CLASS_NAME.fullmatch(self.name):
                raise problem_at("name", self.name, "must be package.module:Class")
            return self
        params_type = TASK_PARAMS.get(self.name)
        if params_type is None:
            known = ", ".join(sorted(TASK_PARAMS))
            near = difflib.get_close_matches(self.name, TASK_PARAMS, n=1)
            raise problem_at("name", self.name,
                f"unknown task; known tasks: {known}, or your own package.module:Class"
                + (f"; did you mean {near[0]}?" if near else ""),
            )  # fmt: skip
        try:
            params_type.model_validate(self.params)
        except ValidationError as error:
            raise problems_at(
                [(("params", *loc), value, text) for loc, value, text in problems_in(error)]
            ) from None
        return self

    def parsed_params(self) -> TaskParams:
        """Return the parameters with defaults, as the task's own type."""
        return TASK_PARAMS[self.name].model_validate(self.params)


class ScriptSpec(SpecModel):
    """A script started once per rank, with `torchrun`'s environment (docs/scripts.md)."""

    path: Annotated[Text, Field(min_length=1)] | None = None
    """Path relative to `code`; without `code`, absolute on every node (`trainhall submit` and `up
    --demo` resolve it against the spec's folder). Give this or `module`."""
    module: Annotated[Name, AfterValidator(_module_name)] | None = None
    """Module to run as `python -m MODULE`."""
    args: list[Text] = Field(default_factory=list, max_length=1024)
    """Arguments of every rank."""
    env: dict[Annotated[str, Field(pattern=VARIABLE_NAME)], Text] = Field(
        default_factory=dict, max_length=256
    )
    """Additional environment variables."""
    interpreter: Annotated[Text, Field(min_length=1), AfterValidator(_program)] | None = None
    """Program that runs the script: an absolute path, or a name on the node's PATH. Default: the
    agent's Python."""
    working_dir: Annotated[Text, Field(min_length=1)] | None = None
    """Working directory, resolved like `path`. Default: `code`, else the script's folder."""

    @model_validator(mode="after")
    def _one_entry(self) -> Self:
        if self.path is not None and self.module is not None:
            raise problem_at("module", self.module, "path and module exclude each other; give one")
        if self.path is None and self.module is None:
            raise problem_at("path", None, "is missing; give path or module")
        return self
