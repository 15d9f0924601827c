"""Quotas: the number of devices that a project or a user may hold at once.

`project` and `user` are what a spec says of itself: quotas share a cluster among people who
cooperate, and do not protect it from others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import ConfigDict, Field

OTHERS = "*"
"""The name under which a quota holds for each that has none of its own."""
KINDS = ("project", "user")


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
        """Return the quotas for a job of this project and user."""
        found = []
        for what, name in (("project", project), ("user", user)):
            if name is not None and (devices := self.limit(what, name)) is not None:
                found.append(Quota(what, name, devices))
        return found

    def limit(self, what: str, name: str) -> int | None:
        """Devices that a project or a user may hold; None: as many as there are."""
        quotas = self._all(what)
        return quotas.get(name, quotas.get(OTHERS))

    def others(self, what: str) -> int | None:
        """Return the limit of those without a quota of their own; None: unlimited."""
        return self._all(what).get(OTHERS)

    def own(self, what: str) -> list[str]:
        """Names of the projects or users that have a quota of their own."""
        return [name for name in self._all(what) if name != OTHERS]

    def _all(self, what: str) -> Mapping[str, int]:
        return self.projects if what == "project" else self.users
