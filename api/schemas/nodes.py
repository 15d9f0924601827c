"""Requests about nodes, and responses that only the API has."""

from typing import Annotated

from pydantic import AfterValidator, Field
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

    labels: dict[str, Label | None] = Field(json_schema_extra=_LABELS)
    """Labels to set; null takes one away. The others stay."""


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
