"""The state that an experiment's next step is decided from."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, Select, and_, bindparam, false, func, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.experiments.asha import RungRun
from trainhall.cluster.experiments.decide import (
    AT_ONCE,
    EarlyStopping,
    ExperimentFacts,
    StartedRun,
)
from trainhall.cluster.experiments.spec import AshaSpec
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import (
    FINAL_STATES,
    UNFINISHED_TRIALS,
    ExperimentState,
    JobState,
    TrialState,
)
from trainhall.db.experiments import Experiment, Trial
from trainhall.db.models import Job, JobProgress
from trainhall.training.spec.recovery import MetricMode

_UNFINISHED = (
    select(
        Experiment.id,
        Experiment.state,
        Experiment.parallel,
        Experiment.goal,
        Experiment.spec["early_stopping"]["asha"].label("asha"),
        Experiment.spec["method"].label("method"),
        Experiment.spec["trials"].label("trials"),
    )
    .where(Experiment.finished_at.is_(None))
    .order_by(Experiment.number)
)


_IS_UNFINISHED = Trial.state.in_(UNFINISHED_TRIALS)
_AT_REST = sorted({*FINAL_STATES, JobState.PAUSED})
_IS_IDLE = and_(
    Trial.command.is_(None),
    or_(
        and_(Trial.state == TrialState.STARTED.value, Job.state.not_in(_AT_REST)),
        and_(Trial.state == TrialState.WAITING.value, Job.state == JobState.PAUSED.value),
    ),
)
"""Runs that only run, or only wait at a rung: no step follows. There may be a thousand."""


# Built once: several of them run in each pass of the reconciler, and building one takes longer
# than its answer.
_STARTED = (
    select(
        Trial.experiment_id, Trial.number, Trial.repeat, Trial.job_id, Trial.command,
        Trial.state, Trial.results, Job.state.label("job_state"), Job.reason_code,
        Job.pauses_after, JobProgress.step,
    )
    .outerjoin(Job, Job.id == Trial.job_id)
    .outerjoin(JobProgress, JobProgress.job_id == Trial.job_id)
    .where(
        Trial.experiment_id.in_(bindparam("experiments", expanding=True)),
        _IS_UNFINISHED | Trial.command.is_not(None),
        # Null where the job was deleted.
        not_(func.coalesce(_IS_IDLE, false())),
    )
    .order_by(Trial.number, Trial.repeat)
)  # fmt: skip
_IDLE = (
    select(Trial.experiment_id, Trial.state, func.count().label("runs"))
    .join(Job, Job.id == Trial.job_id)
    .where(
        Trial.experiment_id.in_(bindparam("experiments", expanding=True)), _IS_UNFINISHED, _IS_IDLE
    )
    .group_by(Trial.experiment_id, Trial.state)
)
_COMPARED = (
    select(Trial.number, Trial.repeat, Trial.state, Trial.results)
    .where(Trial.experiment_id == bindparam("experiment"))
    .order_by(Trial.number, Trial.repeat)
)
_PENDING = (
    select(Trial.number, Trial.repeat)
    .where(Trial.experiment_id == bindparam("experiment"), Trial.state == TrialState.PENDING.value)
    .order_by(Trial.position)
    .limit(AT_ONCE)
)
_NEWEST = select(func.max(Trial.number)).where(Trial.experiment_id == bindparam("experiment"))


async def load_unfinished(session: AsyncSession) -> list[ExperimentFacts]:
    """Load every experiment that has runs left; not the results that its trials are compared by."""
    return await _load(session, _UNFINISHED)


async def load_experiment(session: AsyncSession, experiment_id: str) -> ExperimentFacts | None:
    """Load one experiment; None if it has finished or does not exist."""
    found = await _load(session, _UNFINISHED.where(Experiment.id == experiment_id))
    if not found:
        return None
    (facts,) = found
    if facts.early_stopping is None or not facts.compares:
        return facts
    stopping = replace(facts.early_stopping, runs=await _compared(session, experiment_id))
    return replace(facts, early_stopping=stopping)


async def _load(
    session: AsyncSession, query: Select[str, str, int, str, Any, Any, Any]
) -> list[ExperimentFacts]:
    rows = (await session.execute(query)).all()
    if not rows:
        return []
    ids = [row.id for row in rows]
    started, idle = await _started(session, ids), await _count_idle(session, ids)
    return [
        await _facts(session, row, tuple(started[row.id]), idle.get(row.id, {})) for row in rows
    ]


async def _facts(
    session: AsyncSession,
    row: Row[str, str, int, str, Any, Any, Any],
    started: tuple[StartedRun, ...],
    idle: Mapping[str, int],
) -> ExperimentFacts:
    state = ExperimentState(row.state)
    stopping = None
    if row.asha is not None:
        asha = AshaSpec.model_validate(row.asha)
        stopping = EarlyStopping(asha.rungs, asha.factor, row.goal == MetricMode.MIN)
    undecided = 0
    if row.method == "tpe" and state is not ExperimentState.CANCELLED:
        undecided = await _undecided(session, row.id, row.trials)
    facts = ExperimentFacts(
        row.id, state, row.parallel, started, (), stopping, undecided,
        running=idle.get(TrialState.STARTED, 0), waiting=idle.get(TrialState.WAITING, 0),
    )  # fmt: skip
    return replace(facts, pending=await _pending(session, row.id)) if facts.free > 0 else facts


async def _started(
    session: AsyncSession, experiments: Sequence[str]
) -> dict[str, list[StartedRun]]:
    found: dict[str, list[StartedRun]] = defaultdict(list)
    for row in await session.execute(_STARTED, {"experiments": experiments}):
        paused_by_itself = row.reason_code == ReasonCode.PAUSED_AT_RUNG
        run = StartedRun(
            (row.number, row.repeat),
            row.job_id,
            JobState(row.job_state) if row.job_state is not None else None,
            row.command,
            TrialState(row.state),
            step=row.pauses_after if paused_by_itself else row.step or 0,
            paused_by_itself=paused_by_itself,
            rungs_reached=len(row.results),
        )
        found[row.experiment_id].append(run)
    return found


async def _count_idle(
    session: AsyncSession, experiments: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return the number of runs from which no step follows, by experiment and state."""
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for row in await session.execute(_IDLE, {"experiments": experiments}):
        found[row.experiment_id][row.state] = row.runs
    return found


async def _compared(session: AsyncSession, experiment_id: str) -> tuple[RungRun, ...]:
    rows = await session.execute(_COMPARED, {"experiment": experiment_id})
    return tuple(
        RungRun((row.number, row.repeat), TrialState(row.state), tuple(row.results)) for row in rows
    )


async def _pending(session: AsyncSession, experiment_id: str) -> tuple[tuple[int, int], ...]:
    rows = await session.execute(_PENDING, {"experiment": experiment_id})
    return tuple((row.number, row.repeat) for row in rows)


async def _undecided(session: AsyncSession, experiment_id: str, trials: int) -> int:
    newest = await session.scalar(_NEWEST, {"experiment": experiment_id})
    return trials - (newest or 0)


async def running_reason(session: AsyncSession, experiment: Experiment) -> Reason:
    """Return the reason of an experiment that runs."""
    spec = experiment.spec
    undecided = spec["method"] == "tpe" and await _undecided(session, experiment.id, spec["trials"])
    if undecided or await _pending(session, experiment.id):
        return Reason.of(ReasonCode.TRIALS_RUN, parallel=experiment.parallel)
    return Reason.of(ReasonCode.TRIALS_STARTED)
