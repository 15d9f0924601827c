"""A node's last report of an attempt: one entry of `Attempt.node_outcomes`."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from trainhall.db.sanitize import sanitize_json
from trainhall.training.link.failure import Failure
from trainhall.training.link.stall import Stall
from trainhall.training.link.status import FailedRank, Outcome
from trainhall.training.spec.plan import ChosenPlan


@dataclass(frozen=True)
class HostReport:
    phase: str
    """A phase of `AssignmentReport`, or `gone`: the node has nothing of it any more."""
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
    ended_at: datetime | None = None
    """When the outcome was first reported."""
    generation: int = 1
    """The generation that was reported on."""
    in_place: bool = False
    """True if its ranks can regroup while they run."""
    failed_ranks: tuple[FailedRank, ...] = ()
    leaving: tuple[int, ...] = ()
    """Devices that this generation gave up and that are not free yet."""
    missing: int = field(default=0, compare=False)
    """Reports in a row that did not list the attempt."""

    @property
    def is_over(self) -> bool:
        """Nothing of the attempt runs on the node any more."""
        return self.outcome is not None or self.phase in ("exited", "gone")

    def as_json(self) -> dict[str, Any]:
        """Return the stored form: defaults are left out."""
        values: dict[str, Any] = {
            "phase": self.phase,
            "generation": self.generation,
            "outcome": self.outcome.value if self.outcome is not None else None,
            "failure": dump_failure(self.failure),
            "shipped": self.shipped,
            "stall": self.stall.model_dump(mode="json") if self.stall is not None else None,
            "agent_stopped": self.agent_stopped,
            "isolated": self.isolated,
            "plan": self.plan.model_dump(mode="json") if self.plan is not None else None,
            "ended_at": self.ended_at.timestamp() if self.ended_at is not None else None,
            "in_place": self.in_place,
            "failed_ranks": [each.model_dump(mode="json") for each in self.failed_ranks],
            "leaving": list(self.leaving),
            "missing": self.missing,
        }
        stored: dict[str, Any] = sanitize_json({name: v for name, v in values.items() if v})
        return stored


def parse_host_report(stored: dict[str, Any] | None) -> HostReport | None:
    """Read what `HostReport.as_json` made. What another version stored and this one does not
    understand counts as a failure of the host where it had ended, and is left out otherwise."""
    if stored is None:
        return None
    ended_at = stored.get("ended_at")
    basics = HostReport(
        phase=stored.get("phase", "running"),
        generation=stored.get("generation", 1),
        in_place=bool(stored.get("in_place")),
        leaving=tuple(stored.get("leaving", ())),
        shipped=bool(stored.get("shipped")),
        agent_stopped=bool(stored.get("agent_stopped")),
        isolated=bool(stored.get("isolated")),
        ended_at=datetime.fromtimestamp(ended_at, UTC) if ended_at else None,
        failure=parse_failure(stored.get("failure")),
        missing=stored.get("missing", 0),
    )
    outcome, stall, plan = stored.get("outcome"), stored.get("stall"), stored.get("plan")
    if not (outcome or stall or plan or stored.get("failed_ranks")):
        return basics
    values = vars(basics)
    try:
        return HostReport(
            **values
            | {
                "outcome": Outcome(outcome) if outcome else None,
                "stall": Stall.model_validate(stall) if stall else None,
                "plan": ChosenPlan.model_validate(plan) if plan else None,
                "failed_ranks": tuple(
                    FailedRank.model_validate(f) for f in stored.get("failed_ranks", ())
                ),
            }
        )
    except ValueError:
        return HostReport(**values | {"outcome": Outcome.FAILED if outcome else None})


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
