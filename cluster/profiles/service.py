"""Requesting profiles of running jobs, and listing them."""

from sqlalchemy import func, select

from trainhall.cluster.access.visibility import check_job
from trainhall.cluster.errors import (
    ConflictError,
    InvalidValueError,
    NotFoundError,
    WrongStateError,
)
from trainhall.cluster.jobs.commands import RIGHTS, Command, refusal
from trainhall.cluster.lifecycle.jobs import lock_job
from trainhall.cluster.lifecycle.reasons import EventCode, job_label
from trainhall.cluster.profiles.views import (
    Profile,
    Profiles,
    is_open,
    path_of_trace,
    profile_view,
    ranks_text,
)
from trainhall.cluster.service import Service, load
from trainhall.db.events import record_event
from trainhall.db.models import Attempt, Job
from trainhall.db.outputs import OutputFile
from trainhall.db.tables.profiles import Profile as ProfileRow

LISTED = 100
"""Newest profiles of a job that are listed."""


class ProfileService(Service):
    async def request(
        self, job_id: str, *, steps: int, ranks: list[int] | None, stacks: bool, memory: bool
    ) -> Profile:
        """Ask ranks of a running job to profile their next steps, all the same ones.

        Args:
            ranks: None: all.

        Raises:
            ForbiddenError: the caller may not give commands to the job.
            WrongStateError: it does not run.
            ConflictError: another profile has not ended, or its ranks cannot be profiled.
            InvalidValueError: it has no such rank.
        """
        async with self._db.transaction() as session:
            await lock_job(session, job_id)
            job = await load(session, Job, job_id)
            self._caller.check(RIGHTS[Command.PROFILE], job, "job")
            label = job_label(job.id, job.name)
            why = refusal(job, Command.PROFILE)
            if why is not None:
                raise WrongStateError(f"{label} cannot be profiled: {why}", job.state)
            attempt = await session.get(Attempt, (job.id, job.attempt))
            if attempt is None:
                raise NotFoundError("attempt", f"{job.attempt} of job {job.id}")
            why = self._refusal_of(job, attempt)
            if why is not None:
                raise ConflictError(f"{label} cannot be profiled: {why}")
            chosen = _checked_ranks(ranks, attempt.world_size)
            newest = await session.scalar(
                select(ProfileRow)
                .where(ProfileRow.job_id == job_id)
                .order_by(ProfileRow.number.desc())
                .limit(1)
            )
            if newest is not None and is_open(newest, attempt):
                raise ConflictError(
                    f"{label} is being profiled: profile {newest.number} of {newest.steps} steps "
                    "has not ended; wait for it"
                )
            now = self._clock.now()
            row = ProfileRow(
                job_id=job_id,
                number=1 if newest is None else newest.number + 1,
                attempt=attempt.number,
                generation=attempt.generation,
                steps=steps,
                ranks=chosen,
                stacks=stacks,
                memory=memory,
                asked_by=self._caller.named,
                asked_at=now,
                first_step=None,
                results={},
                ended_at=None,
            )
            session.add(row)
            await session.flush()
            options = [name for name, on in (("stacks", stacks), ("memory", memory)) if on]
            asked = f"{steps} steps of {ranks_text(chosen)}"
            detail = f"{asked}, with {' and '.join(options)}" if options else asked
            self._audit(session, "job.profile", job_id, project=job.project, detail=detail[:500])
            by = f" by {row.asked_by}" if row.asked_by else ""
            await record_event(
                session,
                job_id,
                time=now,
                kind="note",
                code=EventCode.PROFILE_REQUESTED,
                reason=f"profile {row.number} of {detail} was requested{by}",
                attempt=attempt.number,
                data={"profile": row.number},
            )
            view = profile_view(row, attempt, _outputs_path(job), {})
            hosts = attempt.allocation
        self._notifier.notify_hosts(hosts)
        return view

    async def list(self, job_id: str) -> Profiles:
        """Return the newest profiles of a job, the newest first.

        Raises:
            NotFoundError: there is no such job that the caller sees.
        """
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id)
            job = await load(session, Job, job_id)
            attempt = await session.get(Attempt, (job_id, job.attempt))
            newest = select(ProfileRow).where(ProfileRow.job_id == job_id)
            rows = list(
                await session.scalars(newest.order_by(ProfileRow.number.desc()).limit(LISTED))
            )
            outputs_path = _outputs_path(job)
            paths = [
                path_of_trace(outputs_path, row.number, rank)
                for row in rows
                for rank, result in row.results.items()
                if result.saved
            ]
            found = await session.execute(
                select(OutputFile.path, func.min(OutputFile.size).label("size"))
                .where(OutputFile.job_id == job_id, OutputFile.path.in_(paths))
                .group_by(OutputFile.path)
            )
            sizes = {row.path: int(row.size) for row in found}
            items = [profile_view(row, attempt, outputs_path, sizes) for row in rows]
        return Profiles(items=items)

    def _refusal_of(self, job: Job, attempt: Attempt) -> str | None:
        """Return why the ranks of a running job cannot be profiled, as a clause."""
        if not self._options.profiles_allowed:
            return "its cluster is simulated, and has no processes"
        if job.spec.get("script") is not None and not attempt.asks_to_stop:
            return (
                "its script has not called trainhall.should_stop(), which marks the end of a step; "
                "call it once a step on every rank. `trainhall stacks` shows what it does now"
            )
        return None


def _checked_ranks(ranks: list[int] | None, world_size: int) -> list[int]:
    if ranks is None:
        return list(range(world_size))
    for rank in ranks:
        if not 0 <= rank < world_size:
            raise InvalidValueError(
                "ranks", rank, f"must be ranks of the job, from 0 to {world_size - 1}"
            )
    return sorted(set(ranks))


def _outputs_path(job: Job) -> str:
    return (job.spec.get("outputs") or {}).get("path") or "."
