"""The life of an experiment. Nothing else writes its `state`.

    running → paused          a user's pause: no more trials start, and those that run are paused;
                              or by itself, as its first result does not have the metric of the
                              objective: no more trials start, and those that run continue
    paused → running          a user's resume
    running, paused → completed   every trial has ended, and one completed with an objective
    running, paused → failed      every trial has ended, and none completed with an objective
    running, paused → cancelled   a user's cancel: its trials are cancelled

`completed`, `failed` and `cancelled` are final.
"""

from trainhall.cluster.lifecycle.jobs import IllegalTransitionError, set_reason
from trainhall.cluster.lifecycle.reasons import Reason
from trainhall.cluster.lifecycle.states import EXPERIMENT_EDGES, ExperimentState
from trainhall.db.experiments import Experiment


def create_experiment(experiment: Experiment, reason: Reason) -> None:
    """Begin the life of a new experiment."""
    experiment.state = ExperimentState.RUNNING
    set_reason(experiment, reason)


def move_experiment(experiment: Experiment, end: ExperimentState, reason: Reason) -> None:
    """Take one edge of the table; the caller holds the lock of the experiment's row.

    Raises:
        IllegalTransitionError: for an edge that is not in the table.
    """
    start = ExperimentState(experiment.state)
    if (start, end) not in EXPERIMENT_EDGES:
        raise IllegalTransitionError("an experiment", start, end)
    experiment.state = end
    set_reason(experiment, reason)
