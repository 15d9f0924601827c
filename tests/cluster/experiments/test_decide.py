"""The next step of an experiment."""

from collections.abc import Sequence
from dataclasses import replace

from trainhall.cluster.experiments.asha import RunKey
from trainhall.cluster.experiments.decide import (
    AT_ONCE,
    COMMANDS_AT_ONCE,
    ExperimentFacts,
    StartedRun,
    next_step,
)
from trainhall.cluster.lifecycle.states import ExperimentState, JobState

MANY = 2 * COMMANDS_AT_ONCE


def facts(
    state: JobState, *, command: str | None = None, pending: Sequence[RunKey] = ()
) -> ExperimentFacts:
    """As many runs as may be unfinished, all in one state."""
    started = [StartedRun((n, 1), f"job-{n}", state, command) for n in range(1, MANY + 1)]
    return ExperimentFacts("id", ExperimentState.RUNNING, MANY, tuple(started), tuple(pending))


def test_step_gives_few_commands() -> None:
    step = next_step(facts(JobState.RUNNING, command="pause"))
    assert [run.key for run in step.commands] == [(n, 1) for n in range(1, COMMANDS_AT_ONCE + 1)]
    assert not next_step(facts(JobState.PAUSING, command="resume"))


def test_step_ends_and_starts_few_runs() -> None:
    pending = [(MANY + 1, repeat) for repeat in range(1, MANY)]
    step = next_step(facts(JobState.COMPLETED, command="cancel", pending=pending))
    assert len(step.ended) == AT_ONCE
    assert step.start == tuple(pending[:AT_ONCE])
    assert step.commands == ()


def test_experiment_finishes_with_its_last_runs() -> None:
    assert not next_step(facts(JobState.COMPLETED)).finishes
    last = ExperimentFacts(
        "id", ExperimentState.RUNNING, 2, facts(JobState.FAILED).started[:AT_ONCE], ()
    )
    assert next_step(last).finishes
    assert not next_step(replace(last, waiting=1)).finishes
    assert not next_step(replace(last, running=1)).finishes


def test_runs_that_only_run_hold_places() -> None:
    pending = ((3, 1), (4, 1))
    given = ExperimentFacts("id", ExperimentState.RUNNING, 3, (), pending, running=2, waiting=9)
    assert next_step(given).start == ((3, 1),)
