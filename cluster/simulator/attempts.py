"""The attempts of a simulated host, and the one interpreter of the agent's decisions about them.

The decisions are the real agent's. Each kind of host brings the actions that take time, or that a
crash may interrupt.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

from trainhall.cluster.agent.attempt import Attempt
from trainhall.cluster.agent.reconcile import (
    Action,
    CleanUp,
    DesiredAttempt,
    EndAsGeneration,
    Plan,
    Prepare,
    Regroup,
    ReportNotStarted,
    RequestGradients,
    SendCommand,
    Stage,
    Start,
    decide,
)
from trainhall.cluster.wire.protocol import Assignment, AssignmentReport
from trainhall.training.fencing import FencingToken
from trainhall.training.link.failure import Failure
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Command, Launch
from trainhall.training.link.status import Outcome

A = TypeVar("A", bound=Attempt)

SHIM_DIED = "the process that supervised the ranks was killed"
NOWHERE = Path("/nonexistent")


class Attempts(ABC, Generic[A]):
    """
    Args:
        make: makes an attempt.
        launched: the newest (attempt, generation) that was ever launched here, by job.
    """

    def __init__(self, make: type[A], launched: dict[str, tuple[int, int]]) -> None:
        self.attempts: dict[FencingToken, A] = {}
        self._make = make
        self._launched = launched
        self._desired: dict[FencingToken, Assignment] | None = None

    def assignment_reports(self) -> list[AssignmentReport]:
        return [a.report(self._shipped(a)) for a in self.attempts.values()]

    def desire(self, assignments: Sequence[Assignment]) -> None:
        """Take the complete desired state in place of the one before."""
        self._desired = {token_of(a.launch): a for a in assignments}
        self.reconcile()

    def reconcile(self) -> None:
        """Act on the difference between the observed and the desired state."""
        wanted = None
        if self._desired is not None:
            wanted = {
                token: DesiredAttempt.of(assignment)
                for token, assignment in self._desired.items()
                if token in self.attempts or not self._is_leaving(token)
            }
        found = {token: a.observe(self._shipped(a)) for token, a in self.attempts.items()}
        for action in decide(wanted, found, self._launched):
            self._act(action)

    def _act(self, action: Action) -> None:
        match action:
            case Plan(token):
                self._plan(self._add(token, self._wanted(token), Stage.PLANNING))
            case Prepare(token):
                self._prepare(self._add(token, self._wanted(token), Stage.PREPARING))
            case Start(token):
                self._start(self.attempts[token])
            case SendCommand(token, command):
                self._send_command(self.attempts[token], command)
            case RequestGradients(token, gradients):
                self.attempts[token].gradients = gradients
            case Regroup(token, onto):
                self._regroup(self.attempts[token], onto)
            case EndAsGeneration(token, onto):
                self._rename(self.attempts[token], onto)
            case ReportNotStarted(token, outcome, reason):
                self._report_not_started(token, outcome, reason)
            case CleanUp(token):
                self._clean_up(self.attempts.pop(token))

    def _report_not_started(self, token: FencingToken, outcome: Outcome, reason: str) -> None:
        known = self.attempts.get(token)
        attempt = known or self._add(token, self._wanted(token), Stage.READY)
        self._discard(attempt)
        failure = Failure(message=reason) if outcome is Outcome.FAILED else None
        self._end(attempt, outcome, failure)

    def _add(self, token: FencingToken, launch: Launch, stage: Stage) -> A:
        attempt = self._make(token, AttemptFolder(NOWHERE), launch, stage)
        self.attempts[token] = attempt
        return attempt

    def _wanted(self, token: FencingToken) -> Launch:
        assert self._desired is not None
        return self._desired[token].launch

    def _note_launched(self, token: FencingToken) -> None:
        job_id, *number = token
        newest = self._launched.get(job_id, (0, 0))
        self._launched[job_id] = max(newest, (number[0], number[1]))

    # -- what a kind of host brings --------------------------------------------------------------

    @abstractmethod
    def _shipped(self, attempt: A) -> bool:
        """Return whether everything that its ranks wrote is acknowledged."""

    def _is_leaving(self, token: FencingToken) -> bool:
        """Return whether an attempt of its job is still being removed."""
        return False

    def _plan(self, attempt: A) -> None:
        """Plan the job's strategy, on a host whose jobs leave it open."""
        raise NotImplementedError

    @abstractmethod
    def _prepare(self, attempt: A) -> None: ...

    def _start(self, attempt: A) -> None:
        """Start it, on a host whose agent may end between preparing and starting."""

    @abstractmethod
    def _send_command(self, attempt: A, command: Command) -> None: ...

    def _regroup(self, attempt: A, onto: FencingToken) -> None:
        """Hand its ranks a later launch, on a host whose ranks regroup in place."""
        raise NotImplementedError

    def _rename(self, attempt: A, token: FencingToken) -> None:
        """Keep it as a later generation, on a host whose ranks regroup in place."""
        raise NotImplementedError

    def _discard(self, attempt: A) -> None:
        """Stop what is done about an attempt that will not be started."""

    @abstractmethod
    def _end(self, attempt: A, outcome: Outcome, failure: Failure | None) -> None: ...

    def _clean_up(self, attempt: A) -> None:
        """Remove what is kept of it beside `attempts`."""


def token_of(launch: Launch) -> FencingToken:
    return launch.token
