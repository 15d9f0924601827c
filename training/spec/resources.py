"""Job spec: number and kind of devices."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trainhall.training.spec.base import SpecModel
from trainhall.training.spec.problems import problem_at

MAX_WORKERS = 4096
_ELASTIC = ("min_workers", "max_workers")

_NODE_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def _label_that_nodes_may_have(key: str) -> str:
    if not _NODE_LABEL.fullmatch(key):
        raise PydanticCustomError(
            "label",
            "is not a valid node label: use letters, digits, dots, dashes and underscores, "
            "with a letter or digit at both ends",
        )
    return key


LabelKey = Annotated[
    str, Field(min_length=1, max_length=64), AfterValidator(_label_that_nodes_may_have)
]
LabelValue = Annotated[str, Field(max_length=256)]
Workers = Annotated[int, Field(ge=1, le=MAX_WORKERS)]


class Device(StrEnum):
    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class ResourcesSpec(SpecModel):
    workers: Workers = 1
    """Number of ranks, each on one device. Give this or `max_workers`."""
    min_workers: Workers | None = None
    """Fewest ranks of an elastic job. Default: 1."""
    max_workers: Workers | None = None
    """Makes the job elastic (docs/elastic.md): its most ranks. The job starts on free devices,
    shrinks when a node is lost and grows when devices become free."""
    device: Device = Device.AUTO
    """`cuda`: GPUs. `cpu`: CPU slots. `auto`: GPUs if the cluster has any."""
    one_host: bool = False
    """Place all ranks on one node, as for tensor parallelism. Otherwise a job uses as few nodes as
    possible."""
    selector: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=64)
    """Labels that a node must have."""

    @property
    def is_elastic(self) -> bool:
        return self.max_workers is not None

    @property
    def asked(self) -> range:
        """The numbers of ranks that are asked for, ascending; not all of them need be possible."""
        least, most = self.min_workers or self.workers, self.max_workers or self.workers
        return range(least, most + 1)

    def at(self, workers: int) -> Self:
        """Return the same with a fixed number of ranks."""
        fixed = {"workers": workers, "min_workers": None, "max_workers": None}
        return self.model_copy(update=fixed)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        for name in _ELASTIC:
            if getattr(self, name) is not None and "workers" in self.model_fields_set:
                raise problem_at("workers", self.workers,
                    f"workers and {name} exclude each other: give workers for a fixed number of "
                    "ranks, or min_workers and max_workers for an elastic job",
                )  # fmt: skip
        if self.min_workers is not None and self.max_workers is None:
            raise problem_at("max_workers", None,
                "is required with min_workers (an elastic job); give it, or give workers alone",
            )  # fmt: skip
        if self.is_elastic and self.min_workers is None:
            object.__setattr__(self, "min_workers", 1)
        if not self.asked:
            raise problem_at("min_workers", self.min_workers,
                f"must be at most max_workers, {self.max_workers}",
            )  # fmt: skip
        return self

    @model_serializer(mode="wrap")
    def _write_one_form(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        left_out = ("workers",) if self.is_elastic else _ELASTIC
        return {name: value for name, value in data.items() if name not in left_out}


def changed(resources: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `resources` of a document with other values; one form replaces the other."""
    given = [name for name, value in asked.items() if value is not None]
    return without_replaced(resources, given) | dict(asked)


def without_replaced(resources: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the `resources` of a document without the form that the keys `names` replace."""
    left_out: set[str] = set()
    for name in names:
        if name == "workers":
            left_out.update(_ELASTIC)
        elif name in _ELASTIC:
            left_out.add("workers")
    return {name: value for name, value in resources.items() if name not in left_out}
