"""Requests about nodes, and responses that only the API has."""

from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from trainhall.api.schemas.base import Body
from trainhall.cluster.nodes.views import NodeEvent
from trainhall.db.views import Time, View
from trainhall.monitoring.devices import DeviceHistory


def _plain(value: str) -> str:
    if not value.isprintable():
        raise ValueError("may not hold control characters or line breaks")
    return value


Label = Annotated[str, Field(max_length=256), AfterValidator(_plain)]
LabelKey = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_plain)]


class NewNode(Body):
    """A host that shall join."""

    name: Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_plain)] | None = None
    """For people; unique. Chosen when it is left out."""
    labels: dict[LabelKey, Label] = Field(default_factory=dict)
    """At most 64."""

    @field_validator("labels")
    @classmethod
    def _few(cls, labels: dict[str, str]) -> dict[str, str]:
        if len(labels) > 64:
            raise ValueError(f"at most 64 labels, not {len(labels)}")
        return labels


class Drain(Body):
    """Why a node is drained."""

    reason: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_plain)] | None = (
        None
    )
    """Shown with the node, and in the jobs that move."""


class NodeChange(Body):
    """Changes to a node."""

    labels: dict[LabelKey, Label | None]
    """Labels to set; null takes one away. The others stay."""


class NodeEvents(View):
    """Events of a node."""

    items: list[NodeEvent]
    """The oldest first; the last 100 are kept."""


class AnnouncedNode(View):
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


class NodeHistory(View):
    """Past use of the devices of a node."""

    items: list[DeviceHistory]
