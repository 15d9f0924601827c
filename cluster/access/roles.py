"""Roles in projects, and what each allows; imports nothing of the coordinator.

A viewer reads, a member also submits and commands what is their own, a maintainer commands
everything of the project and manages its members. The flag `admin` of a user stands above all
projects.
"""

from enum import StrEnum

DEFAULT_PROJECT = "default"
"""Project of what was made before there were others, and of those who use no accounts."""


class Role(StrEnum):
    """A role in a project, the least first."""

    VIEWER = "viewer"
    MEMBER = "member"
    MAINTAINER = "maintainer"

    @property
    def rank(self) -> int:
        """0 for the least."""
        return _ORDER.index(self)


_ORDER = tuple(Role)


class Action(StrEnum):
    """Something that is done to what belongs to a project, as refusals name it."""

    READ = "read"
    """State, events, logs, metrics, lists of checkpoints."""
    READ_FILES = "read files of"
    """Bytes of checkpoints, and code."""
    SUBMIT = "submit to"
    """Jobs, their code, and experiments."""
    LOG = "log to"
    """Metrics, parameters, tags and files of a run that runs elsewhere."""
    ANNOTATE = "write notes and tags on"
    COMMAND = "change"
    """Pause, resume, resize, cancel, restore, pin, verify, delete: members only what is their own,
    maintainers everything."""
    MANAGE = "manage"
    """Members, service accounts, and limits of a project."""


_LEAST = {
    Action.READ: Role.VIEWER,
    Action.READ_FILES: Role.MEMBER,
    Action.SUBMIT: Role.MEMBER,
    Action.LOG: Role.MEMBER,
    Action.ANNOTATE: Role.MEMBER,
    Action.COMMAND: Role.MAINTAINER,
    Action.MANAGE: Role.MAINTAINER,
}


def needed_role(action: Action, *, own: bool = False) -> Role:
    """Return the least role that allows an action.

    Args:
        own: it is done to what belongs to the caller.
    """
    if action is Action.COMMAND and own:
        return Role.MEMBER
    return _LEAST[action]


def allows(role: Role | None, action: Action, *, own: bool = False) -> bool:
    """Return whether a role, or none, allows an action."""
    return role is not None and role.rank >= needed_role(action, own=own).rank
