"""The state that an experiment's next step is decided from."""

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.experiments.decide import AT_ONCE, ExperimentFacts, StartedRun
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode
from trainhall.cluster.lifecycle.states import ExperimentState, JobState, TrialState
from trainhall.db.experiments import Experiment, Trial
from trainhall.db.models import Job

_UNFINISHED = (
    select(Experiment.id, Experiment.state, Experiment.parallel)
    .where(Experiment.finished_at.is_(None))
    .order_by(Experiment.number)
)


async def load_unfinished(session: AsyncSession) -> list[ExperimentFacts]:
    """Load every experiment that has runs left."""
    return await _load(session, _UNFINISHED)


async def load_experiment(session: AsyncSession, experiment_id: str) -> ExperimentFacts | None:
    """Load one experiment; None if it has finished or does not exist."""
    found = await _load(session, _UNFINISHED.where(Experiment.id == experiment_id))
    return found[0] if found else None


async def _load(session: AsyncSession, query: Select[str, str, int]) -> list[ExperimentFacts]:
    rows = (await session.execute(query)).all()
    if not rows:
        return []
    started = await _started(session, [row.id for row in rows])
    found = []
    for row in rows:
        runs = tuple(started[row.id])
        is_full = sum(not run.has_ended for run in runs) >= row.parallel
        pending = () if is_full else await _pending(session, row.id)
        state = ExperimentState(row.state)
        found.append(ExperimentFacts(row.id, state, row.parallel, runs, pending))
    return found


async def _started(
    session: AsyncSession, experiments: Sequence[str]
) -> dict[str, list[StartedRun]]:
    found: dict[str, list[StartedRun]] = defaultdict(list)
    query = (
        select(
            Trial.experiment_id, Trial.number, Trial.repeat, Trial.job_id, Trial.command, Job.state
        )
        .outerjoin(Job, Job.id == Trial.job_id)
        .where(Trial.experiment_id.in_(experiments), Trial.state == TrialState.STARTED.value)
        .order_by(Trial.number, Trial.repeat)
    )
    for row in await session.execute(query):
        state = JobState(row.state) if row.state is not None else None
        run = StartedRun((row.number, row.repeat), row.job_id, state, row.command)
        found[row.experiment_id].append(run)
    return found


async def _pending(session: AsyncSession, experiment_id: str) -> tuple[tuple[int, int], ...]:
    rows = await session.execute(
        select(Trial.number, Trial.repeat)
        .where(Trial.experiment_id == experiment_id, Trial.state == TrialState.PENDING.value)
        .order_by(Trial.number, Trial.repeat)
        .limit(AT_ONCE)
    )
    return tuple((row.number, row.repeat) for row in rows)


async def running_reason(session: AsyncSession, experiment: Experiment) -> Reason:
    """Return the reason of an experiment that runs."""
    if await _pending(session, experiment.id):
        return Reason.of(ReasonCode.TRIALS_RUN, parallel=experiment.parallel)
    return Reason.of(ReasonCode.TRIALS_STARTED)
