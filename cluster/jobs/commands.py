"""The commands that users give to a job, and the states that allow them."""

from collections.abc import Mapping
from enum import StrEnum

from trainhall.cluster.errors import WrongStateError
from trainhall.cluster.lifecycle.reasons import job_label
from trainhall.cluster.lifecycle.states import ACTIVE_STATES, FINAL_STATES, JobState
from trainhall.db.models import Job


class Command(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    RESIZE = "resize"
    CANCEL = "cancel"
    RESTORE = "restore"
    CAPTURE_GRADIENTS = "capture_gradients"


DONE = {
    Command.PAUSE: "paused", Command.RESUME: "resumed", Command.CANCEL: "cancelled",
    Command.RESIZE: "resized", Command.RESTORE: "restored",
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


def refusal(job: Job, command: Command) -> str | None:
    """Return why a job refuses a command, as a clause about "it"; None if it accepts it."""
    state = JobState(job.state)
    if command is Command.RESIZE:
        if state in FINAL_STATES or state is JobState.CANCELLING:
            return (
                f"it is {state.value}; restore one of its checkpoints with other resources instead"
            )
        return None
    if command is Command.RESTORE:
        if state in ACTIVE_STATES:
            return f"it is {state.value}; pause or cancel it before a restore"
        return None
    if command is Command.CAPTURE_GRADIENTS:
        if job.spec.get("script") is not None:
            return (
                "it runs a script, whose gradients are not recorded; a script reads them with "
                "Trainer.watch_gradients"
            )
        return f"it is {state.value} and takes no more steps" if state in FINAL_STATES else None
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


def refused_commands(job: Job) -> dict[Command, str]:
    """Return the commands that would have no effect, each with the reason as a sentence.

    A repeated command, such as pausing a paused job, is accepted but has no effect either.
    """
    state = JobState(job.state)
    refused = {}
    for command in Command:
        why = refusal(job, command)
        if why is None and TRANSITIONS.get(command, {}).get(state, state) is None:
            why = f"it is already {state.value}"
        if why is not None:
            refused[command] = f"{why[0].upper()}{why[1:]}."
    return refused
