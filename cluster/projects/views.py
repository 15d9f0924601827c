"""Views of projects, as the REST API returns them."""

from typing import Literal

from trainhall.cluster.access.limits import ProjectLimits
from trainhall.cluster.access.roles import Role
from trainhall.db.views import Page, Time, View


class Project(View):
    """Home of jobs, and of roles on them."""

    name: str
    role: Role
    """Your role, as far as the credential reaches; an admin is a maintainer of all."""
    limits: ProjectLimits
    configured: list[str]
    """Names of the limits that `trainhall.toml` sets, which are changed there alone."""
    created_at: Time


class ProjectPage(Page[Project]):
    """Projects by name."""


class ProjectMember(View):
    """Role of a user, or of a group."""

    member: str
    """Name of a user, or `group:NAME`."""
    kind: Literal["person", "service", "group"]
    role: Role


class ProjectMemberPage(Page[ProjectMember]):
    """Members of a project, groups first, by name."""
