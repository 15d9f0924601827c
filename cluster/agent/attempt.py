"""One attempt on this host, as the agent knows and reports it."""

import asyncio
import subprocess
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from trainhall.cluster.agent.os_support import accounts
from trainhall.cluster.agent.reconcile import ObservedAttempt, Stage
from trainhall.cluster.wire.protocol import AssignmentReport, AttemptPhase
from trainhall.training.fencing import FencingToken
from trainhall.training.link.failure import Failure
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import Command, Launch
from trainhall.training.link.status import Outcome, ShimStatus
from trainhall.training.spec.plan import ChosenPlan


@dataclass
class Attempt:
    """One attempt on this host, and what this agent knows of it."""

    token: FencingToken
    folder: AttemptFolder
    launch: Launch
    stage: Stage
    plan: ChosenPlan | None = None
    plan_refusal: str | None = None
    """Why the strategy of its own cannot be predicted."""
    preparing: str | None = None
    """Work on its environment or its data sets, in words; None: none, or they are there."""
    sessions: int = 0
    """Sessions of users beside its ranks: commands and forwarded ports."""
    status: ShimStatus | None = None
    status_stamp: tuple[int, int] = (0, 0)
    """Inode and time of the status file that was read last."""
    outcome: Outcome | None = None
    failure: Failure | None = None
    final_command: Command = Command.RUN
    """Command that an agent which is about to end gives it."""
    gradients: int = 0
    """The newest request for gradients that this agent has passed on to its ranks."""
    profile: int = 0
    """The same of requests for a profile."""
    task: asyncio.Task[None] | None = None
    """Work in progress: preparing, starting, or cleaning up after a dead shim."""
    removal: asyncio.Task[None] | None = None
    """Removes the folder of an attempt that will never run here."""
    starts: int = 0
    started_at: float | None = None
    """When a shim was started that has not taken the folder yet (monotonic)."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def observe(self, shipped: bool) -> ObservedAttempt:
        asked = self.status.command if self.status is not None else Command.RUN
        stage = self.stage
        if stage is Stage.READY and (self.started_at is not None or self.task is not None):
            # A shim is on its way; it gets its commands once it listens.
            stage = Stage.LIVE
        return ObservedAttempt(
            stage, asked, shipped, self.final_command, self.gradients, self.profile
        )

    def as_owner(self) -> AbstractContextManager[None]:
        """Touch the files in its folder as their owner, who may have put links there."""
        return accounts.acting_as(accounts.owner_of(self.folder.path))

    @property
    def is_behind(self) -> bool:
        """Return whether the shim has taken up a later generation than this agent knows."""
        return self.status is not None and self.status.generation > self.token.generation

    @property
    def log_fields(self) -> dict[str, object]:
        job_id, attempt, generation = self.token
        return {"job": job_id, "attempt": attempt, "generation": generation}

    @property
    def stopped_mark(self) -> Path:
        """Return the file that marks an attempt stopped with its agent, for the next agent."""
        return self.folder.path / "agent-stopped"

    @property
    def ended_with_agent(self) -> bool:
        with self.as_owner():
            return self.outcome is not Outcome.COMPLETED and self.stopped_mark.exists()

    def report(self, shipped: bool) -> AssignmentReport:
        job_id, attempt, generation = self.token
        status = self.status
        report = AssignmentReport(
            job_id=job_id,
            attempt=attempt,
            generation=generation,
            phase=self._phase,
            ranks=status.ranks if status is not None else [],
            rendezvous=status.rendezvous if status is not None else None,
            plan=self.plan if self.stage is Stage.PLANNING else None,
            plan_refusal=self.plan_refusal if self.stage is Stage.PLANNING else None,
            preparing=self.preparing,
            sessions=self.sessions if self.launch.spec.interactive is not None else None,
        )
        if self.stage is Stage.ENDED:
            report.outcome, report.failure = self.outcome, self.failure
            report.shipped = shipped
            report.isolated = status is not None and status.isolated
            report.agent_stopped = self.ended_with_agent
        elif status is not None:
            report.in_place = self.launch.in_place
            report.failed_ranks, report.leaving = status.failed_ranks, status.leaving
            report.stall = status.stall
        return report

    @property
    def _phase(self) -> AttemptPhase:
        match self.stage:
            case Stage.ENDED:
                return "exited"
            case Stage.PLANNING:
                return "planning"
            case Stage.PREPARING:
                return "preparing"
            case Stage.LIVE if self.status is not None:
                # The end is reported by `outcome`, which this agent sets when it has seen to it.
                return "stopping" if self.status.phase == "exited" else self.status.phase
        return "starting"


def keep_prepared(launch: Launch, before: Launch) -> Launch:
    """Return the launch of a later generation, for a host that already takes part in the attempt.

    If every rank loses its state, the ranks start again from the best known checkpoint.

    Args:
        before: of an earlier generation, with what was made ready here.
    """
    ready, names = before.checkpoint, launch.checkpoint.resume
    if ready.upload:
        # What ranks here have saved is here; nothing else is fetched while they wait.
        names = [name for name in names if (Path(ready.folder) / name).is_dir()]
    newer = [name for name in names if name not in ready.resume]
    plan = ready.model_copy(update={"resume": [*newer, *ready.resume]})
    kept = {
        "code": before.code,
        "environment": before.environment,
        "container": before.container,
    }
    return launch.model_copy(update={"checkpoint": plan, **kept}).with_data(before.data)
