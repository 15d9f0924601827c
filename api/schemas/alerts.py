"""Requests about alerts."""

from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool

from trainhall.api.schemas.base import Body, Name
from trainhall.cluster.alerts.service import Definition, Scope
from trainhall.cluster.alerts.targets import MAX_URL, Target, TargetKind
from trainhall.cluster.alerts.views import ScopeKind
from trainhall.cluster.lifecycle.alerts import Condition
from trainhall.training.spec.base import one_line

_MAX_SECONDS = 365 * 86400.0


Conditions = Annotated[list[Condition], Field(min_length=1, max_length=len(Condition))]
Seconds = Annotated[float, Field(strict=True, ge=0, le=_MAX_SECONDS)]
Percent = Annotated[float, Field(strict=True, gt=0, le=100)]


class NewScope(Body):
    """Jobs that an alert is to be about."""

    kind: ScopeKind
    value: Annotated[str, Field(max_length=128), AfterValidator(one_line)] | None = None
    """Id of the job, or name of the project or the user; left out for the cluster."""


class NewTarget(Body):
    """Receiver of an alert's messages."""

    kind: TargetKind
    url: Annotated[str, Field(max_length=MAX_URL)] | None = None
    """`http(s)://…` of a webhook or of Slack, `mailto:…` of mail; left out for browsers."""


class NewAlert(Body):
    """Alert to create."""

    name: Name
    """For people."""
    on: Conditions
    scope: NewScope = NewScope(kind="cluster")
    waiting_seconds: Seconds = 3600.0
    """`job.waiting` is reported of jobs that wait longer."""
    disk_percent: Percent = 90.0
    """`disk.filling` is reported of disks that are fuller."""
    target: NewTarget

    def definition(self) -> Definition:
        return Definition(
            name=self.name,
            on=tuple(self.on),
            target=_target(self.target),
            scope=_scope(self.scope),
            waiting_seconds=self.waiting_seconds,
            disk_percent=self.disk_percent,
        )


class AlertChange(Body):
    """Changes to an alert; what is left out or null stays."""

    name: Name | None = None
    on: Conditions | None = None
    scope: NewScope | None = None
    waiting_seconds: Seconds | None = None
    disk_percent: Percent | None = None
    target: NewTarget | None = None
    enabled: StrictBool | None = None
    """False: it reports nothing. True: it reports again, as if its target had never failed."""

    def changes(self) -> dict[str, object]:
        """Return the fields of `Definition` that the request has."""
        plain = ("name", "waiting_seconds", "disk_percent", "enabled")
        found: dict[str, object] = {
            "on": None if self.on is None else tuple(self.on),
            "scope": None if self.scope is None else _scope(self.scope),
            "target": None if self.target is None else _target(self.target),
            **{name: getattr(self, name) for name in plain},
        }
        return {name: value for name, value in found.items() if value is not None}


def _scope(scope: NewScope) -> Scope:
    return Scope(scope.kind, scope.value)


def _target(target: NewTarget) -> Target:
    return Target(target.kind, target.url)
