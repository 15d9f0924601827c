"""How many devices a project or a user may hold at once.

`project` and `user` are what a spec says of itself: quotas share a cluster among people who mean
well, and are no boundary against others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import ConfigDict, Field

OTHERS = "*"
"""The name under which a quota holds for each that has none of its own."""


@dataclass(frozen=True)
class Quota:
    what: str
    """project or user."""
    name: str
    devices: int


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """Devices at once, by name."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    projects: Mapping[str, Annotated[int, Field(ge=0)]] = field(default_factory=dict)
    users: Mapping[str, Annotated[int, Field(ge=0)]] = field(default_factory=dict)

    def of(self, project: str | None, user: str | None) -> list[Quota]:
        """Those that hold for a job of this project and user."""
        found = []
        for what, name, all_of_them in (
            ("project", project, self.projects),
            ("user", user, self.users),
        ):
            if name is not None:
                devices = all_of_them.get(name, all_of_them.get(OTHERS))
                if devices is not None:
                    found.append(Quota(what, name, devices))
        return found
