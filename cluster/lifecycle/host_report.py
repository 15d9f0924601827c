"""The last report of each node of an attempt, as `Attempt.node_outcomes` stores it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from trainhall.db.models import Attempt
from trainhall.db.sanitize import sanitize_json
from trainhall.training.link.failure import Failure
from trainhall.training.link.stall import Stall
from trainhall.training.link.status import FailedRank, Outcome
from trainhall.training.spec.plan import ChosenPlan

HostPhase = Literal["planning", "preparing", "starting", "running", "stopping", "exited", "gone"]
"""A phase of `AssignmentReport`, or `gone`: the node has nothing of it any more."""


@dataclass(frozen=True)
class HostReport:
    phase: HostPhase = "running"
    outcome: Outcome | None = None
    failure: Failure | None = None
    shipped: bool = False
    stall: Stall | None = None
    """Set while its ranks take no step."""
    agent_stopped: bool = False
    """True if it ended because the node's agent was stopped."""
    isolated: bool = False
    """True if it ended because its host could not reach the coordinator for long."""
    plan: ChosenPlan | None = None
    """The plan that it made, while the attempt waits for one."""
    plan_refusal: str | None = None
    """Why it cannot predict the strategy that the spec names; the attempt starts without."""
    preparing: str | None = None
    """Work of its agent on the job's environment or data sets, in words."""
    prepared_at: datetime | None = None
    """When such work was last reported."""
    sessions: int = 0
    """Sessions of users beside its ranks here, of an interactive job."""
    used_at: datetime | None = None
    """When there was the last one, or the ranks of an interactive job began to run."""
    ended_at: datetime | None = None
    """When the outcome was first reported."""
    generation: int = 1
    """The generation that was reported on."""
    in_place: bool = False
    """True if its ranks can regroup while they run."""
    failed_ranks: tuple[FailedRank, ...] = ()
    leaving: tuple[int, ...] = ()
    """Devices that this generation released and that are not free yet."""
    missing: int = field(default=0, compare=False)
    """Reports in a row that did not list the attempt."""

    @property
    def is_over(self) -> bool:
        """Nothing of the attempt runs on the node any more."""
        return self.outcome is not None or self.phase in ("exited", "gone")

    def as_json(self) -> dict[str, Any]:
        """Return the stored form: defaults are left out."""
        stored: dict[str, Any] = sanitize_json(
            _STORED.dump_python(self, mode="json", exclude_defaults=True)
        )
        return stored


_STORED = TypeAdapter(HostReport)


def idle_since(reports: Iterable[HostReport]) -> datetime | None:
    """Return since when an attempt of an interactive job has had no session; None: it has one, or
    its ranks do not run yet.

    Args:
        reports: of its hosts.
    """
    found = list(reports)
    if any(each.sessions for each in found):
        return None
    return max((each.used_at for each in found if each.used_at is not None), default=None)


def reports_of(attempt: Attempt) -> dict[str, HostReport]:
    """Return the last report of each node, by node id, also of hosts that a regrouping left out.

    What another version stored and this one does not understand counts as a failure of the host
    where it had ended, and is left out otherwise.
    """
    return {node_id: _parse(stored) for node_id, stored in attempt.node_outcomes.items()}


def report_of(attempt: Attempt, node_id: str) -> HostReport | None:
    """Return one node's last report, as `reports_of` does."""
    stored = attempt.node_outcomes.get(node_id)
    return _parse(stored) if stored is not None else None


def set_report(attempt: Attempt, node_id: str, report: HostReport) -> bool:
    """Set a node's last report; return whether what is stored changed."""
    stored = report.as_json()
    if stored == attempt.node_outcomes.get(node_id):
        return False
    attempt.node_outcomes = {**attempt.node_outcomes, node_id: stored}
    return True


def _parse(stored: dict[str, Any]) -> HostReport:
    try:
        return _STORED.validate_python(stored)
    except ValidationError as error:
        unread = {each["loc"][0] for each in error.errors(include_url=False, include_input=False)}
    read = {name: value for name, value in stored.items() if name not in unread}
    read["failure"] = parse_failure(stored.get("failure"))
    if stored.get("outcome"):
        read["outcome"] = Outcome.FAILED
    return _STORED.validate_python(read)


def parse_failure(stored: dict[str, Any] | None) -> Failure | None:
    """Read a stored failure; of one that is not understood its message is kept."""
    if stored is None:
        return None
    try:
        return Failure.model_validate(stored)
    except ValidationError:
        return Failure(message=str(stored.get("message", "")))


def dump_failure(failure: Failure | None) -> dict[str, Any] | None:
    return failure.model_dump(mode="json") if failure is not None else None
