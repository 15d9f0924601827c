"""Experiments as users see them: create, read, pause, resume, cancel."""

import asyncio

from sqlalchemy import func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster import pagination
from trainhall.cluster.access.limits import check_limits, limits_for
from trainhall.cluster.access.ownership import hold_project, owned_spec
from trainhall.cluster.access.roles import DEFAULT_PROJECT, Action
from trainhall.cluster.access.visibility import ANYBODY, OwnerFilter, visible
from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.experiments import views
from trainhall.cluster.experiments.benchmark.capacity import check_capacity
from trainhall.cluster.experiments.commands import STATE_AFTER, check_allowed
from trainhall.cluster.experiments.load import running_reason
from trainhall.cluster.experiments.runs import (
    Configuration,
    job_of,
    limited_samples,
    num_runs,
    of_job,
    plan_configurations,
    start_order,
)
from trainhall.cluster.experiments.spec import ExperimentSpec, rungs_of
from trainhall.cluster.jobs.code_store import CodeStore
from trainhall.cluster.jobs.commands import Command
from trainhall.cluster.jobs.listing.hints import metric_hint
from trainhall.cluster.lifecycle.creation import Creation, RequestKey
from trainhall.cluster.lifecycle.experiments import create_experiment, move_experiment
from trainhall.cluster.lifecycle.jobs import reason_columns, set_reason
from trainhall.cluster.lifecycle.reasons import Reason, ReasonCode, experiment_label
from trainhall.cluster.lifecycle.states import UNFINISHED_TRIALS, ExperimentState, TrialState
from trainhall.cluster.secrets.stored import check_secrets
from trainhall.cluster.service import Service, ServiceContext, load
from trainhall.db.experiments import Experiment, Trial
from trainhall.db.models import Job, JobProgress
from trainhall.training.spec import JobSpec, SpecError


class ExperimentService(Service):
    def __init__(self, context: ServiceContext, code: CodeStore) -> None:
        super().__init__(context)
        self._code = code
        self._creation = Creation(context, Experiment)

    async def plan(self, spec: ExperimentSpec) -> views.ExperimentPlan:
        """Return what an experiment would run, and create nothing.

        Raises:
            ForbiddenError: the caller may not submit to the project of its job.
            InvalidValueError: there is no such project.
            SpecError: one of its jobs would not be valid, or names a folder of code; a benchmark or
                scaling study has more workers than the nodes of its project have devices.
        """
        planned = await asyncio.to_thread(plan_configurations, spec)
        try:
            code = self._code.limited_to(self._caller)
            code_missing = not await code.has(job_of(spec, {}, 1, 1))
        except SpecError as error:
            raise of_job(error) from None
        async with self._db.session() as session:
            job = job_of(spec, {}, 1, 1)
            if self._caller.how != "none":  # who may name a new project
                job = await owned_spec(session, self._caller, job, self._clock)
                await self._check_limits(session, spec, planned, job)
            await check_capacity(session, spec, planned, job.project or DEFAULT_PROJECT)
            hint = await metric_hint(session, self._caller, spec.objective.metric)
        return views.ExperimentPlan(
            name=spec.name,
            runs=num_runs(spec, planned),
            code_missing=code_missing,
            hint=hint,
            configurations=[
                views.Configuration.of(each, problem=each.problem or None) for each in planned
            ],
            spec=spec.document(),
        )

    async def create(
        self, spec: ExperimentSpec, request: RequestKey | None = None
    ) -> tuple[views.Experiment, bool]:
        """Create an experiment with all trials that are decided; the reconciler starts them.

        Returns:
            The experiment and whether it is new: the same request gives the same experiment.

        Raises:
            ConflictError: the key was used with another body.
            ForbiddenError: the caller may not submit to the project of its job.
            InvalidValueError: there is no such project.
            SpecError: one of its jobs would not be valid, or names code that was not uploaded; a
                benchmark or scaling study has more workers than the nodes of its project have
                devices.
        """
        planned = await asyncio.to_thread(plan_configurations, spec)
        try:
            await self._code.limited_to(self._caller).check(job_of(spec, {}, 1, 1))
        except SpecError as error:
            raise of_job(error) from None
        view, created = await self._creation.once(
            self._caller, request, lambda session: self._add(session, spec, planned), self._view
        )
        if created:
            self._notifier.notify_reconciler()
        return view, created

    async def _check_limits(
        self,
        session: AsyncSession,
        spec: ExperimentSpec,
        planned: list[Configuration],
        job: JobSpec,
    ) -> None:
        """Check that each job is within the limits of the project.

        Args:
            job: one without the values that vary, with its owner.

        Raises:
            InvalidValueError: one is not.
        """
        limits = await limits_for(session, self._caller, job.project)
        if limits is None:
            return
        owner = {"user": job.user, "project": job.project}

        def check() -> None:
            check_limits(limits, job)
            for each in limited_samples(spec, planned):
                run = job_of(spec, each.values, each.number, 1).model_copy(update=owner)
                check_limits(limits, run)

        try:
            await asyncio.to_thread(check)
        except InvalidValueError as error:
            message = error.message.removeprefix(f"{error.field}: ")
            raise InvalidValueError(f"job.{error.field}", error.value, message) from None

    async def _add(
        self, session: AsyncSession, spec: ExperimentSpec, planned: list[Configuration]
    ) -> str:
        job = await owned_spec(session, self._caller, job_of(spec, {}, 1, 1), self._clock)
        await hold_project(session, job.project)
        await self._check_limits(session, spec, planned, job)
        try:
            await check_secrets(session, job)
        except SpecError as error:
            raise of_job(error) from None
        project = job.project or DEFAULT_PROJECT
        await check_capacity(session, spec, planned, project)
        owner = {"user": job.user, "project": job.project}
        await self._code.keep(session, job.uploaded_code, project)
        spec = spec.model_copy(update={"job": {**spec.job, **owner}})
        newest = await session.scalar(select(func.max(Experiment.number)))
        goal = spec.objective.goal
        assert goal is not None
        experiment = Experiment(
            id=self._ids.new(),
            number=(newest or 0) + 1,
            name=spec.name,
            **owner,
            kind=spec.kind,
            spec=spec.document(),
            code=job.uploaded_code,
            asked_by=self._caller.named,
            metric=spec.objective.metric,
            goal=goal.value,
            objective_at=spec.objective.at,
            parallel=spec.parallel,
            created_at=self._clock.now(),
        )
        create_experiment(experiment, Reason.of(ReasonCode.TRIALS_RUN, parallel=spec.parallel))
        session.add(experiment)
        await session.flush()
        by_number = {each.number: each for each in planned}
        session.add_all(
            _trial(experiment.id, by_number[number], repeat, position)
            for position, (number, repeat) in enumerate(start_order(spec, planned), 1)
        )
        self._audit(session, "experiment.create", experiment.id, project=experiment.project)
        await session.flush()
        return experiment.id

    async def get(self, experiment_id: str) -> views.Experiment:
        async with self._db.session() as session:
            return await self._view(session, experiment_id)

    async def list(
        self, *, limit: int = 50, cursor: str | None = None, of: OwnerFilter = ANYBODY
    ) -> views.ExperimentPage:
        """List experiments, the newest first."""
        pagination.check_limit(limit)
        query = (
            select(Experiment)
            .where(*visible(self._caller, Experiment.project))
            .where(*of.conditions(Experiment.user, Experiment.project))
            .order_by(Experiment.number.desc())
            .limit(limit + 1)
        )
        if cursor is not None:
            query = query.where(Experiment.number < pagination.decode_number("experiments", cursor))
        async with self._db.session() as session:
            rows = (await session.scalars(query)).all()
            items = await views.experiment_views(session, rows[:limit], self._caller)
        more = len(rows) > limit
        following = pagination.encode("experiments", rows[limit - 1].number) if more else None
        return views.ExperimentPage(items=items, next_cursor=following)

    async def trials(
        self, experiment_id: str, *, limit: int = 100, cursor: str | None = None
    ) -> views.TrialPage:
        """List the runs of an experiment, in their order."""
        pagination.check_limit(limit)
        query = (
            select(Trial, Job, JobProgress)
            .outerjoin(Job, Job.id == Trial.job_id)
            .outerjoin(JobProgress, JobProgress.job_id == Job.id)
            .where(Trial.experiment_id == experiment_id)
            .order_by(Trial.number, Trial.repeat)
            .limit(limit + 1)
        )
        if cursor is not None:
            number, repeat = pagination.decode("trials", cursor, int, int)
            query = query.where(tuple_(Trial.number, Trial.repeat) > tuple_(number, repeat))
        async with self._db.session() as session:
            experiment = await load(session, Experiment, experiment_id)
            self._caller.check(Action.READ, experiment, "experiment")
            rows = (await session.execute(query)).all()
        rungs = rungs_of(experiment.spec)
        items = [views.trial_view(*row, rungs) for row in rows[:limit]]
        following = None
        if len(rows) > limit:
            following = pagination.encode("trials", items[-1].number, items[-1].repeat)
        return views.TrialPage(items=items, next_cursor=following)

    async def pause(self, experiment_id: str) -> views.Experiment:
        """Pause an experiment: its jobs pause, and no further trial starts."""
        return await self._command(experiment_id, Command.PAUSE)

    async def resume(self, experiment_id: str) -> views.Experiment:
        """Resume a paused experiment, and the jobs that were paused with it.

        Raises:
            WrongStateError: it is not paused.
        """
        return await self._command(experiment_id, Command.RESUME)

    async def cancel(self, experiment_id: str) -> views.Experiment:
        """Cancel an experiment: its jobs are cancelled, and no further trial starts."""
        return await self._command(experiment_id, Command.CANCEL)

    async def _command(self, experiment_id: str, command: Command) -> views.Experiment:
        """Record what is commanded; the reconciler passes it on to the jobs."""
        async with self._db.transaction() as session:
            experiment = await load(session, Experiment, experiment_id, locked=True)
            self._caller.check(Action.COMMAND, experiment, "experiment")
            state, end = ExperimentState(experiment.state), STATE_AFTER[command]
            if state is not end:
                check_allowed(experiment, command)
                experiment.asked_by = self._caller.named
                reason = await _reason(session, experiment, command)
                move_experiment(experiment, end, reason)
                self._audit(
                    session, f"experiment.{command}", experiment_id, project=experiment.project,
                    changes={"state": (state, end)},
                )  # fmt: skip
                await _command_trials(session, experiment, command)
                await session.flush()
            elif command is Command.RESUME:
                check_allowed(experiment, command)
            view = await self._view(session, experiment_id)
        self._notifier.notify_reconciler()
        return view

    async def _view(self, session: AsyncSession, experiment_id: str) -> views.Experiment:
        experiment = await load(session, Experiment, experiment_id)
        self._caller.check(Action.READ, experiment, "experiment")
        (view,) = await views.experiment_views(session, [experiment], self._caller)
        return view


def _trial(experiment_id: str, planned: Configuration, repeat: int, position: int) -> Trial:
    trial = Trial(
        experiment_id=experiment_id,
        number=planned.number,
        repeat=repeat,
        position=position,
        values=planned.values,
        state=TrialState.PENDING.value,
    )
    if planned.problem:
        trial.state = TrialState.FAILED.value
        set_reason(trial, Reason.of(ReasonCode.CANNOT_RUN, why=planned.problem))
    return trial


async def _reason(session: AsyncSession, experiment: Experiment, command: Command) -> Reason:
    match command:
        case Command.PAUSE:
            return Reason.of(ReasonCode.PAUSED, user=experiment.asked_by)
        case Command.CANCEL:
            return Reason.of(ReasonCode.CANCELLED, user=experiment.asked_by)
    return await running_reason(session, experiment)


async def _command_trials(session: AsyncSession, experiment: Experiment, command: Command) -> None:
    of_experiment = Trial.experiment_id == experiment.id
    started = (of_experiment, Trial.state == TrialState.STARTED.value)
    if command is Command.PAUSE:
        await session.execute(update(Trial).where(*started).values(command="pause"))
    elif command is Command.RESUME:
        # A job whose pause was not yet passed on runs on.
        await session.execute(
            update(Trial).where(*started, Trial.paused.is_(False)).values(command=None)
        )
        await session.execute(
            update(Trial).where(*started, Trial.paused.is_(True)).values(command="resume")
        )
    else:
        label = experiment_label(experiment.id, experiment.name)
        reason = Reason.of(
            ReasonCode.EXPERIMENT_CANCELLED, experiment=label, user=experiment.asked_by
        )
        unfinished = Trial.state.in_(UNFINISHED_TRIALS)
        await session.execute(
            update(Trial).where(of_experiment, unfinished).values(command="cancel")
        )
        await session.execute(
            update(Trial)
            .where(of_experiment, Trial.state == TrialState.PENDING.value)
            .values(state=TrialState.CANCELLED.value, **reason_columns(reason))
        )
