"""Requests for what-if comparisons."""

from typing import Annotated, Literal

from pydantic import Field

from trainhall.api.schemas.base import Body
from trainhall.cluster.quotas import Quotas
from trainhall.cluster.what_if import change

MAX_DAYS = 3650
MAX_NODES, MAX_DEVICES = 1000, 64
MAX_CHANGES = 100

Name = Annotated[str, Field(min_length=1, max_length=128)]
Names = Annotated[dict[Name, int], Field(max_length=MAX_CHANGES)]
Limits = Annotated[dict[Name, Annotated[int, Field(ge=0)]], Field(max_length=MAX_CHANGES)]


class NewNodes(Body):
    """Nodes that could be bought."""

    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)]
    devices: Annotated[int, Field(ge=1, le=MAX_DEVICES)]
    """Number of each node's devices."""
    device: Literal["cpu", "cuda"] | None = None
    """Their kind; left out: cuda if the cluster has any, else cpu."""
    labels: dict[str, str] = Field(default_factory=dict, max_length=MAX_DEVICES)
    """Labels that selectors of jobs are compared with."""


class OtherQuotas(Body):
    """Devices at once, by name; those of other projects and users stay."""

    projects: Limits = Field(default_factory=dict)
    users: Limits = Field(default_factory=dict)


class OtherPriorities(Body):
    """Priorities that all jobs of a project or a user would have had."""

    projects: Names = Field(default_factory=dict)
    users: Names = Field(default_factory=dict)


class Question(Body):
    """Changes to compare the cluster with; nothing is changed."""

    days: Annotated[float, Field(gt=0, le=MAX_DAYS)] = 30
    """Age of the oldest jobs to replay."""
    add: list[NewNodes] = Field(default_factory=list, max_length=MAX_CHANGES)
    remove: list[Name] = Field(default_factory=list, max_length=MAX_NODES)
    """Names of nodes."""
    quotas: OtherQuotas = OtherQuotas()
    priorities: OtherPriorities = OtherPriorities()

    def change(self) -> change.Change:
        return change.Change(
            add=[
                change.AddedNodes(each.nodes, each.devices, each.device, each.labels)
                for each in self.add
            ],
            remove=frozenset(self.remove),
            quotas=Quotas(projects=self.quotas.projects, users=self.quotas.users),
            project_priorities=self.priorities.projects,
            user_priorities=self.priorities.users,
        )
