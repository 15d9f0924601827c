"""The gradients of a job by parameter: request a step's, store and read what ranks report.

A request is a number that rises. It is part of the hosts' desired state until a record answers it,
so that an agent, a rank or a coordinator may end in between.
"""

import asyncio
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from sqlalchemy import bindparam, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.access.roles import Action
from trainhall.cluster.access.visibility import check_job
from trainhall.cluster.errors import ConflictError, NotFoundError, WrongStateError
from trainhall.cluster.jobs.commands import RIGHTS, Command, refusal
from trainhall.cluster.lifecycle.jobs import lock_job
from trainhall.cluster.lifecycle.reasons import job_label
from trainhall.cluster.lifecycle.states import JobState
from trainhall.cluster.service import Service, load
from trainhall.db.documents import Allocation
from trainhall.db.models import Attempt, GradientRecord, GradientRequest, Job
from trainhall.db.views import View
from trainhall.training.link import gradient_record

KEPT_RECORDS = 512
"""Records kept of a job. Beyond it every other one goes: with 1,024 names they take about 10 MB."""
KEPT_HISTOGRAMS = 16
"""Newest records of a job whose histograms are kept."""


_PENDING = select(GradientRequest.job_id, GradientRequest.asked).where(
    GradientRequest.job_id.in_(bindparam("jobs", expanding=True)),
    GradientRequest.asked > GradientRequest.answered,
)


class GradientRequests(View):
    """State of a job's requests."""

    asked: int
    """Number of the newest request; 0: there was none."""
    answered: int
    """Number of the newest one that was answered; below `asked` while a step is pending."""


@dataclass(frozen=True)
class Captured:
    """The gradients of one step."""

    attempt: int
    step: int
    time: datetime
    request: int
    """Number of the request that it answers; 0: the spec wants it."""
    has_histograms: bool
    names: list[str]
    norms: list[float | str]
    """NaN and infinities as strings, here and below."""
    largest: list[float | str]


class GradientService(Service):
    async def ask(self, job_id: str) -> GradientRequests:
        """Ask a job for the gradients of its next step, with histograms.

        While a request waits for its answer, asking again changes nothing.

        Raises:
            ConflictError: it runs a script, which computes its own gradients.
            WrongStateError: it has ended.
        """
        async with self._db.transaction() as session:
            await lock_job(session, job_id)
            job = await load(session, Job, job_id)
            self._caller.check(RIGHTS[Command.CAPTURE_GRADIENTS], job, "job")
            why = refusal(job, Command.CAPTURE_GRADIENTS)
            if why is not None:
                label = job_label(job_id, job.name)
                message = f"gradients of {label} cannot be recorded: {why}"
                if job.spec.get("script") is not None:
                    raise ConflictError(message)
                raise WrongStateError(message, JobState(job.state))
            request = await session.get(GradientRequest, job_id)
            if request is None:
                request = GradientRequest(job_id=job_id, asked=0, answered=0)
                session.add(request)
            if request.asked == request.answered:
                request.asked += 1
                self._audit(session, "job.capture_gradients", job_id, project=job.project)
            await session.flush()
            asked = GradientRequests.of(request)
            attempt = await session.get(Attempt, (job_id, job.attempt))
            allocation = attempt.allocation if attempt is not None else Allocation()
        self._notifier.notify_hosts(allocation)
        return asked

    async def history(self, job_id: str, most: int) -> tuple[GradientRequests, list[Captured]]:
        """Return at most so many records, evenly chosen, the newest among them; oldest first."""
        async with self._db.session() as session:
            await check_job(session, self._caller, job_id)
            request = await session.get(GradientRequest, job_id)
            valid = await _valid(session, job_id)
            chosen = set(_spread(valid, most))
            rows = await session.scalars(
                select(GradientRecord)
                .where(
                    GradientRecord.job_id == job_id,
                    GradientRecord.step.in_([step for _, step in chosen]),
                )
                .order_by(GradientRecord.step)
            )
            counting = [row for row in rows if (row.attempt, row.step) in chosen]
        found = await asyncio.to_thread(lambda: [_captured(row) for row in counting])
        none = GradientRequests(asked=0, answered=0)
        asked = GradientRequests.of(request) if request is not None else none
        return asked, found

    async def one(self, job_id: str, step: int) -> tuple[Captured, list[dict[str, Any]] | None]:
        """Return the record of a step, with its histograms if it has them.

        Raises:
            NotFoundError: none was captured at that step, or it is kept no more.
        """
        async with self._db.session() as session:
            job = await load(session, Job, job_id)
            self._caller.check(Action.READ, job, "job")
            row = await session.scalar(
                select(GradientRecord)
                .where(GradientRecord.job_id == job_id, GradientRecord.step == step)
                .order_by(GradientRecord.attempt.desc())
                .limit(1)
            )
        if row is None:
            raise NotFoundError("recorded step", f"{step} of {job_label(job_id, job.name)}")
        packed = row.histograms
        return _captured(row), None if packed is None else orjson.loads(zlib.decompress(packed))


async def pending(session: AsyncSession, job_ids: Sequence[str]) -> dict[str, int]:
    """Return, by job, the number of a request that waits for its answer."""
    if not job_ids:
        return {}
    rows = await session.execute(_PENDING, {"jobs": list(job_ids)})
    return {row.job_id: row.asked for row in rows}


async def store(
    session: AsyncSession, attempt: Attempt, record: gradient_record.GradientRecord, time: datetime
) -> None:
    """Store the record of an attempt's ranks, in place of an earlier one of the same step."""
    key = (attempt.job_id, attempt.number, record.step)
    known = await session.get(GradientRecord, key)
    if known is not None:
        await session.delete(known)
        await session.flush()
    record_json = record.as_json()
    histograms = record_json.pop("histograms", None)
    columns = {name: record_json[name] for name in ("names", "norms", "largest")}
    session.add(
        GradientRecord(
            job_id=attempt.job_id,
            attempt=attempt.number,
            step=record.step,
            time=time,
            request=record.request,
            columns=zlib.compress(orjson.dumps(columns)),
            histograms=None if histograms is None else zlib.compress(orjson.dumps(histograms)),
        )
    )
    await session.flush()
    await _thin(session, attempt.job_id, record.step)
    if record.request:
        await session.execute(
            update(GradientRequest)
            .where(
                GradientRequest.job_id == attempt.job_id,
                GradientRequest.answered < record.request,
                GradientRequest.asked >= record.request,
            )
            .values(answered=record.request)
        )
        await _drop_histograms(session, attempt.job_id)


async def _thin(session: AsyncSession, job_id: str, newest: int) -> None:
    """Thin out a job's records.

    Args:
        newest: the step reported last, which is not the highest one where steps are repeated.
    """
    of_job = GradientRecord.job_id == job_id
    number = await session.scalar(select(func.count()).where(of_job))
    if (number or 0) <= KEPT_RECORDS:
        return
    rows = await session.execute(
        select(GradientRecord.step).where(of_job).order_by(GradientRecord.step).distinct()
    )
    steps = [step for (step,) in rows]
    every_other = [step for step in steps[1::2] if step != newest]
    # What was asked for goes by its own bound.
    await session.execute(
        delete(GradientRecord).where(
            of_job, GradientRecord.step.in_(every_other), GradientRecord.histograms.is_(None)
        )
    )


async def _drop_histograms(session: AsyncSession, job_id: str) -> None:
    has = (GradientRecord.job_id == job_id, GradientRecord.histograms.is_not(None))
    oldest_kept = await session.scalar(
        select(GradientRecord.request)
        .where(*has)
        .order_by(GradientRecord.request.desc())
        .offset(KEPT_HISTOGRAMS - 1)
        .limit(1)
    )
    if oldest_kept is not None:
        await session.execute(
            update(GradientRecord)
            .where(*has, GradientRecord.request < oldest_kept)
            .values(histograms=None)
        )


async def _valid(session: AsyncSession, job_id: str) -> list[tuple[int, int]]:
    """Return (attempt, step) of the valid records, by step: the newest of repeated ones."""
    rows = await session.execute(
        select(GradientRecord.attempt, GradientRecord.step)
        .where(GradientRecord.job_id == job_id)
        .order_by(GradientRecord.attempt.desc(), GradientRecord.step)
    )
    begins = {
        number: first
        for number, first in await session.execute(
            select(Attempt.number, Attempt.first_step).where(Attempt.job_id == job_id)
        )
        if first is not None
    }
    return sorted(
        (
            (attempt, step)
            for attempt, step in rows
            if all(step < first for number, first in begins.items() if number > attempt)
        ),
        key=lambda each: each[1],
    )


def _spread(all_: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    if len(all_) <= most:
        return list(all_)
    last = len(all_) - 1
    indices = {last - round(i * last / max(most - 1, 1)) for i in range(most)}
    return [all_[i] for i in sorted(indices)]


def _captured(row: GradientRecord) -> Captured:
    columns = orjson.loads(zlib.decompress(row.columns))
    has_histograms = row.histograms is not None
    return Captured(row.attempt, row.step, row.time, row.request, has_histograms, **columns)
