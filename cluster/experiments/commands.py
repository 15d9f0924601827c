"""The commands that users give to an experiment, and the states that allow them."""

from trainhall.cluster.errors import WrongStateError
from trainhall.cluster.jobs.commands import DONE, Command
from trainhall.cluster.lifecycle.reasons import experiment_label
from trainhall.cluster.lifecycle.states import EXPERIMENT_EDGES, ExperimentState
from trainhall.db.experiments import Experiment

STATE_AFTER = {
    Command.PAUSE: ExperimentState.PAUSED,
    Command.RESUME: ExperimentState.RUNNING,
    Command.CANCEL: ExperimentState.CANCELLED,
}


def allowed_commands(state: ExperimentState) -> list[Command]:
    """Return the commands that have an effect in a state."""
    return [command for command, end in STATE_AFTER.items() if (state, end) in EXPERIMENT_EDGES]


def check_allowed(experiment: Experiment, command: Command) -> None:
    """Check that an experiment's state allows a command.

    Raises:
        WrongStateError: it does not.
    """
    state = ExperimentState(experiment.state)
    if command in allowed_commands(state):
        return
    why = f"it is {state.value}, which is final"
    if command is Command.RESUME:
        why = f"it is {state.value}; only a paused experiment can be resumed"
    label = experiment_label(experiment.id, experiment.name)
    raise WrongStateError(f"{label} cannot be {DONE[command]}: {why}", state)
