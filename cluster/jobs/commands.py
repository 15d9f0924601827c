"""The commands that users give to a job, the states that allow them, and how they are given."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.limits import check_size, limits_for
from trainhall.cluster.access.principal import Principal
from trainhall.cluster.access.roles import Action
from trainhall.cluster.errors import ConflictError, NotFoundError, WrongStateError
from trainhall.cluster.jobs.resizing import withdraw_unapplied
from trainhall.cluster.jobs.spec_changes import changed_spec, job_columns
from trainhall.cluster.lifecycle.jobs import lock_job, move_job, move_run, request_stop
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode, job_label
from trainhall.cluster.lifecycle.states import (
    ACTIVE_STATES,
    FINAL_STATES,
    Goal,
    JobKind,
    JobState,
)
from trainhall.db.documents import Allocation
from trainhall.db.models import Attempt, Job
from trainhall.training.fencing import FencingToken


class Command(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    RESIZE = "resize"
    CANCEL = "cancel"
    RESTORE = "restore"
    CAPTURE_GRADIENTS = "capture_gradients"
    ARCHIVE = "archive"
    UNARCHIVE = "unarchive"
    DELETE = "delete"
    EXEC = "exec"
    """A session beside its ranks: a command, or connections to a port."""
    STACKS = "stacks"
    PROFILE = "profile"


OF_RUNS = frozenset({Command.CANCEL, Command.ARCHIVE, Command.UNARCHIVE, Command.DELETE})
"""Commands that a run, which runs elsewhere, can be given."""
RIGHTS: Mapping[Command, Action] = {
    **dict.fromkeys(Command, Action.COMMAND),
    # It takes nothing away.
    Command.ARCHIVE: Action.ANNOTATE,
    Command.UNARCHIVE: Action.ANNOTATE,
}
"""The right that each command takes."""

DONE = {
    Command.PAUSE: "paused", Command.RESUME: "resumed", Command.CANCEL: "cancelled",
    Command.RESIZE: "resized", Command.RESTORE: "restored", Command.ARCHIVE: "archived",
    Command.UNARCHIVE: "unarchived", Command.DELETE: "deleted",
}  # fmt: skip

# The state that a command leads to from each state; a state that is not listed refuses it. A
# command that is repeated where it already led (None) changes nothing: a client whose reply was
# lost sends it again.
TRANSITIONS: Mapping[Command, Mapping[JobState, JobState | None]] = {
    Command.PAUSE: {
        JobState.QUEUED: JobState.PAUSED,
        JobState.RECOVERING: JobState.PAUSED,
        JobState.STARTING: JobState.PAUSING,
        JobState.RUNNING: JobState.PAUSING,
        JobState.PAUSING: None,
        JobState.PAUSED: None,
    },
    Command.RESUME: {JobState.PAUSED: JobState.QUEUED},
    Command.CANCEL: {
        JobState.QUEUED: JobState.CANCELLED,
        JobState.RECOVERING: JobState.CANCELLED,
        JobState.PAUSED: JobState.CANCELLED,
        JobState.STARTING: JobState.CANCELLING,
        JobState.RUNNING: JobState.CANCELLING,
        JobState.PAUSING: JobState.CANCELLING,
        JobState.CANCELLING: None,
        JobState.CANCELLED: None,
    },
}


_ARCHIVING = {True: Command.ARCHIVE, False: Command.UNARCHIVE}
"""The command that has no effect, by whether the job is archived."""
_NOTHING: Mapping[str, dict[str, Any]] = {}
_REASONS = {
    JobState.PAUSED: ReasonCode.PAUSED_BEFORE_START,
    JobState.PAUSING: ReasonCode.PAUSE_REQUESTED,
    JobState.CANCELLED: ReasonCode.CANCELLED,
    JobState.CANCELLING: ReasonCode.CANCEL_REQUESTED,
    JobState.QUEUED: ReasonCode.RESUMED,
}
_GOALS: Mapping[JobState, Goal] = {JobState.PAUSING: "pause", JobState.CANCELLING: "stop"}
"""Goals of the attempt that runs meanwhile."""


@dataclass(frozen=True)
class Commanded:
    """Effect of a command."""

    has_effect: bool
    """False where it only repeats what was commanded before."""
    before: JobState
    job: Job
    """As it is now."""
    hosts: Allocation
    """Hosts of the job's newest attempt."""


async def give_command(
    session: AsyncSession,
    job_id: str,
    command: Command,
    *,
    now: datetime,
    caller: Principal,
    asked: Mapping[str, dict[str, Any]] = _NOTHING,
    reason: Reason | None = None,
) -> Commanded:
    """Pause, resume or cancel a job.

    Args:
        asked: keys to replace, by the part of the spec that they are in.
        reason: the reason for it, if it is not a user's own command to this job.

    Raises:
        ForbiddenError: the caller may not give it.
        NotFoundError: there is no such job that they see.
        WrongStateError: its state does not allow the command.
        ConflictError: the job changed between reading and writing; look again.
    """
    progress = await lock_job(session, job_id)
    job = await session.get(Job, job_id, populate_existing=True)
    if progress is None or job is None:
        raise NotFoundError("job", job_id)
    caller.check(RIGHTS[command], job, "job")
    state = JobState(job.state)
    check_allowed(job, command)
    end = TRANSITIONS[command][state]
    if end is None:
        return Commanded(False, state, job, Allocation())
    reason = reason or _user_reason(job, end, asked, caller.named)
    if job.kind == JobKind.RUN:
        await move_run(session, job, JobState.CANCELLED, reason=reason, now=now)
        return Commanded(True, state, job, Allocation())
    attempt = await session.get(Attempt, (job_id, job.attempt))
    if end in _GOALS:
        await _stop(session, attempt, _GOALS[end], reason, now)
    changes: dict[str, Any] = {"asked_by": reason.params.get("user")}
    if end is JobState.CANCELLED and attempt is not None:
        changes |= await withdraw_unapplied(session, job, attempt, now)
    if command is Command.RESUME:
        changes |= {
            "restarts": 0,
            "restarts_step": progress.step,
            "pauses_after": max(job.pauses_after, progress.step),
        }
    if asked:
        spec = changed_spec(job.spec, asked.get("resources"), asked.get("parallelism"))
        check_size(await limits_for(session, caller, job.project), spec, job.spec)
        changes |= job_columns(spec)
    if not await move_job(
        session, job_id, state, end,
        reason=reason, now=now, attempt=job.attempt, changes=changes,
    ):  # fmt: skip
        raise ConflictError
    await session.refresh(job)
    await session.refresh(progress)
    hosts = attempt.allocation if attempt is not None else Allocation()
    return Commanded(True, state, job, hosts)


def _user_reason(
    job: Job, end: JobState, asked: Mapping[str, dict[str, Any]], user: str | None
) -> Reason:
    code = _REASONS[end]
    if end is JobState.PAUSED and job.attempt > 0:
        code = ReasonCode.PAUSED_WHILE_WAITING
    changes = f" with {_describe_changes(asked)}" if asked else ""
    return Reason.of(code, user=user, changes=changes)


async def _stop(
    session: AsyncSession, attempt: Attempt | None, goal: Goal, reason: Reason, now: datetime
) -> None:
    """Let an attempt pause or stop.

    Raises:
        ConflictError: it has ended, or another generation of it has begun.
    """
    if attempt is None:
        raise ConflictError
    token = FencingToken(attempt.job_id, attempt.number, attempt.generation)
    if not await request_stop(session, token, goal, reason=reason, now=now):
        raise ConflictError


def _describe_changes(asked: Mapping[str, dict[str, Any]]) -> str:
    return ", ".join(
        f"{part}.{key} {value}" for part, values in asked.items() for key, value in values.items()
    )


def refusal(job: Job, command: Command) -> str | None:
    """Return why a job refuses a command, as a clause about "it"; None if it accepts it."""
    state = JobState(job.state)
    if job.kind == JobKind.RUN and command not in OF_RUNS:
        return "it runs elsewhere, and is only logged here"
    match command:
        case Command.RESIZE if state in FINAL_STATES or state is JobState.CANCELLING:
            return (
                f"it is {state.value}; restore one of its checkpoints with other resources instead"
            )
        case Command.RESTORE if state in ACTIVE_STATES:
            return f"it is {state.value}; pause or cancel it before a restore"
        case Command.CAPTURE_GRADIENTS if job.spec.get("script") is not None:
            return (
                "it runs a script, whose gradients are not recorded; a script reads them with "
                "Trainer.watch_gradients"
            )
        case Command.CAPTURE_GRADIENTS if state in FINAL_STATES:
            return f"it is {state.value} and takes no more steps"
        case Command.EXEC | Command.STACKS if state not in ACTIVE_STATES:
            return f"it is {state.value}, and has no processes"
        case Command.PROFILE if state is not JobState.RUNNING:
            return f"it is {state.value}; only the steps of a running job can be profiled"
        case Command.ARCHIVE | Command.DELETE if state not in FINAL_STATES:
            return f"it is {state.value}; cancel it first, or wait until it has ended"
    return _refused_transition(state, command) if command in TRANSITIONS else None


def _refused_transition(state: JobState, command: Command) -> str | None:
    table = TRANSITIONS[command]
    if state in table:
        return None
    if state in FINAL_STATES:
        remedy = "; restore one of its checkpoints instead" if command is Command.RESUME else ""
        return f"it is {state.value}, which is final{remedy}"
    *others, last = (s.value for s, end in table.items() if end is not None)
    allowed = f"{', '.join(others)} or {last}" if others else last
    return f"it is {state.value}; only a {allowed} job can be {DONE[command]}"


def check_allowed(job: Job, command: Command) -> None:
    """Raise WrongStateError if the job's state does not allow the command."""
    why = refusal(job, command)
    if why is not None:
        message = f"{job_label(job.id, job.name)} cannot be {DONE[command]}: {why}"
        raise WrongStateError(message, job.state)


def refused_commands(
    job: Job, caller: Principal, others: Mapping[Command, str] | None = None
) -> dict[Command, str]:
    """Return the commands that would have no effect, or that the caller may not give, each with the
    reason as a sentence.

    A repeated command, such as pausing a paused job, is accepted but has no effect either.

    Args:
        others: reasons that do not follow from its own row, as clauses about "it".
    """
    state = JobState(job.state)
    refused = {}
    for command in Command:
        why = caller.refusal(RIGHTS[command], job, "job") or refusal(job, command)
        if why is None and TRANSITIONS.get(command, {}).get(state, state) is None:
            why = f"it is already {state.value}"
        if why is None and command is _ARCHIVING[bool(job.archived)]:
            why = f"it is {'already' if job.archived else 'not'} archived"
        why = why or (others or {}).get(command)
        if why is not None:
            refused[command] = f"{why[0].upper()}{why[1:]}."
    return refused
