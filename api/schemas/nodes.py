"""Requests about nodes, and responses that only the API has."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.config import JsonDict

from trainhall.api.schemas.base import Body
from trainhall.cluster.nodes.names import MAX_KEY, MAX_LABEL, MAX_LABELS, MAX_NAME, NAME
from trainhall.cluster.nodes.views import NodeEvent
from trainhall.db.views import Time, View
from trainhall.monitoring.devices import DeviceHistory
from trainhall.training.spec.base import one_line

# What is allowed, `cluster.nodes.names` checks; here it is only described.
_NAME: JsonDict = {"pattern": f"^{NAME.pattern}$", "minLength": 1, "maxLength": MAX_NAME}
_KEY: JsonDict = {"type": "string", **_NAME, "maxLength": MAX_KEY}
_LABELS: JsonDict = {"maxProperties": MAX_LABELS, "propertyNames": _KEY}
Name = Annotated[str, Field(json_schema_extra=_NAME)]
ProjectName = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(one_line)]
Label = Annotated[str, Field(json_schema_extra={"maxLength": MAX_LABEL})]


class NewNode(Body):
    """A host that shall join."""

    name: Name | None = None
    """For people; unique. Chosen when it is left out."""
    labels: dict[str, Label] = Field(default_factory=dict, json_schema_extra=_LABELS)
    """At most 64."""


class Drain(Body):
    """Why a node is drained."""

    reason: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(one_line)] | None = (
        None
    )
    """Shown with the node, and in the jobs that move."""


class NodeChange(Body):
    """Changes to a node."""

    labels: dict[str, Label | None] = Field(default_factory=dict, json_schema_extra=_LABELS)
    """Labels to set; null takes one away. The others stay."""
    projects: Annotated[list[ProjectName], Field(max_length=1000)] | None = None
    """The only projects whose jobs it gets; null: all. Left out, it stays as it is."""

    @model_validator(mode="after")
    def _check_given(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("give labels or projects")
        return self


class NodeEvents(View):
    """Events of a node."""

    items: list[NodeEvent]
    """The oldest first; the last 100 are kept."""


class RegisteredNode(View):
    """A node that may join once with this token."""

    id: str
    name: str
    join_token: str
    """Works once."""
    command: str
    """Run this on the host."""
    note: str | None
    """Limitation of the command; null when it works on any host."""
    expires_at: Time
    """When the token ends."""
    replaced_token: bool
    """A token that it was given before, and that was not used, no longer works."""


class NodeHistory(View):
    """Past use of the devices of a node."""

    items: list[DeviceHistory]
