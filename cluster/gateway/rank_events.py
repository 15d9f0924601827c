"""Reports of ranks (`RankEvent`): stored as events, checkpoints and progress, exactly once.

A writer numbers its events; a batch is stored in one transaction together with the newest number,
so that a batch which is sent again changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from pydantic import ValidationError
from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.checkpoints.lineage import STORE
from trainhall.cluster.checkpoints.service import CheckpointService
from trainhall.cluster.checkpoints.verification import mark_corrupt
from trainhall.cluster.errors import InvalidValueError, NotFoundError
from trainhall.cluster.jobs import gradients, plans
from trainhall.cluster.jobs.incidents import newest_incident
from trainhall.cluster.jobs.source import packages
from trainhall.cluster.lifecycle.generations import (
    has_stepped,
    note_first_step,
    note_full_size,
    note_restart_point,
)
from trainhall.cluster.lifecycle.jobs import lock_job
from trainhall.cluster.lifecycle.reasons import EventCode, ReasonCode, job_label
from trainhall.cluster.profiles import requests as profiles
from trainhall.cluster.runs import logged
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.wire.protocol import first_problem
from trainhall.db.documents import Allocation
from trainhall.db.events import record_event
from trainhall.db.models import Attempt, Checkpoint, Job, JobProgress, Writer
from trainhall.db.sanitize import sanitize_json, sanitize_metrics
from trainhall.monitoring.lineage import UNKNOWN, Origin, superseded_from
from trainhall.training.checkpoint.format.errors import SkipReason
from trainhall.training.link.events import RankEvent
from trainhall.training.link.gradient_record import GradientRecord
from trainhall.training.link.packages import Packages
from trainhall.training.link.profiling.messages import ProfileReport

log = structlog.get_logger(__name__)

_BATCH = 200
"""Events in one transaction."""


_LOCKED_ATTEMPT = (
    select(Attempt)
    .where(Attempt.job_id == bindparam("at_job"), Attempt.number == bindparam("at_number"))
    .with_for_update()
)


@dataclass(frozen=True, slots=True)
class EventContext:
    """Sender of a batch of events, and the rows of its transaction that they may change."""

    session: AsyncSession
    job: Job
    attempt: Attempt
    """Locked."""
    writer: Writer
    origin: Origin


class RankEvents(Service):
    def __init__(self, context: ServiceContext, checkpoints: CheckpointService) -> None:
        super().__init__(context)
        self._checkpoints = checkpoints

    async def accept(
        self,
        job_id: str,
        attempt: int,
        writer: str,
        events: Sequence[RankEvent],
        origin: Origin = UNKNOWN,
    ) -> int:
        """Store the new ones of `events`; returns the newest sequence that is committed.

        Events of a revoked attempt change nothing but are kept as a note, marked superseded; so are
        events of ranks that a regrouping left out, once the others have continued without them.

        Raises:
            NotFoundError: no such attempt.
        """
        acked, checkpoint, ordered = 0, False, sorted(events, key=lambda e: e.sequence)
        # Many short transactions, so that a flood of events delays no others.
        for at in range(0, max(len(ordered), 1), _BATCH):
            batch = ordered[at : at + _BATCH]
            before, acked, allocation = await self._accept_batch(
                job_id, attempt, writer, batch, origin
            )
            checkpoint = checkpoint or any(event.kind == "checkpoint" for event in batch)
            new = [event for event in batch if event.sequence > before]
            suspects = [name for event in new for name in _suspects(event)]
            if suspects:
                # Takes longer than an agent waits for its answer.
                self._checkpoints.verification.verify_later(job_id, suspects)
        self._notifier.notify_job(job_id)
        if checkpoint:
            self._notifier.notify_hosts(allocation)  # the retention may have deleted older ones
        return acked

    async def _accept_batch(
        self,
        job_id: str,
        attempt: int,
        writer: str,
        events: Sequence[RankEvent],
        origin: Origin,
    ) -> tuple[int, int, Allocation]:
        """Store a batch; return the newest committed sequence before and after it, and the
        attempt's hosts."""
        async with self._db.transaction() as session:
            # The locks make batches of a job wait for each other, and for its revocation.
            await lock_job(session, job_id)
            row = await session.scalar(_LOCKED_ATTEMPT, {"at_job": job_id, "at_number": attempt})
            job = await session.get(Job, job_id)
            if row is None or job is None:
                label = job_label(job_id, job.name if job is not None else None)
                raise NotFoundError("attempt", f"{attempt} of {label}")
            known = await session.get(Writer, (job_id, attempt, writer))
            if known is None:
                known = Writer(
                    job_id=job_id, attempt=attempt, name=writer, metric_sequence=0, event_sequence=0
                )
                session.add(known)
                await session.flush()
            before = known.event_sequence
            context = EventContext(session, job, row, known, origin)
            for event in events:
                if event.sequence > known.event_sequence:
                    await self._take(context, event)
                    known.event_sequence = event.sequence
            return before, known.event_sequence, row.allocation

    async def _take(self, context: EventContext, event: RankEvent) -> None:
        first_superseded = superseded_from(context.attempt, context.origin)
        if first_superseded is not None and _is_superseded(
            event, context.attempt, first_superseded
        ):
            await self._note_superseded(context, event, first_superseded)
            return
        if event.kind == "gradients":
            await self._gradients(context, event)
            return
        if event.kind == "profile":
            await self._profile(context, event)
            return
        if event.kind == "asks":
            context.attempt.asks_to_stop = True
            await context.session.flush()
            return
        if event.kind == "packages":
            await self._packages(context, event)
            return
        if event.kind == "logged":
            # Late reports of an earlier attempt replace nothing.
            if context.attempt.number == context.job.attempt:
                logged.join(context.job, event.data)
                await context.session.flush()
            return
        data: dict[str, Any] = sanitize_json(event.data)
        match event.kind:
            case "started":
                await self._started(context, event, data)
            case "stepped":
                await self._stepped(context, event, data)
            case "checkpoint":
                await self._checkpoint(context, event)
            case "completed":
                await self._completed(context, event, data)
                await self._measured(context, data)
            case "failure":
                kind, message = data.get("type"), data.get("message")
                why = (
                    f"rank {event.rank}: {kind}: {message}" if kind else f"rank {event.rank} failed"
                )
                await self._note(context, event, EventCode.RANK_ERROR, why, data, kind="failure")
            case "paused":
                why = f"stopped at step {data.get('step')} and saved"
                await self._note(context, event, EventCode.RANK_PAUSED, why, data)
                await self._measured(context, data)
            case "note" | "network" | "not_saved":
                code, kind = _MESSAGES[event.kind]
                message = str(data.get("message", ""))
                await self._note(context, event, code, message, data, kind=kind)

    async def _note_superseded(
        self, context: EventContext, event: RankEvent, first_superseded: int
    ) -> None:
        if event.kind in ("gradients", "packages", "logged", "asks", "profile"):
            return
        attempt, data = context.attempt, sanitize_json(event.data)
        why = "the attempt continued without these ranks"
        if attempt.revoked:
            why = "the attempt was replaced"
        why = f"discarded, {why}: {event.kind}"
        await self._note(context, event, EventCode.RANK_REPORT_DISCARDED, why, data)
        if event.kind == "started" and first_superseded:
            _note_lineage(attempt, data, first_superseded, context.origin)

    async def _started(self, context: EventContext, event: RankEvent, data: dict[str, Any]) -> None:
        progress = await _locked_progress(context)
        total = _count(data.get("total_steps"))
        if total is not None:
            progress.total_steps = total
        # Without it, it may resume from a checkpoint of its own: its first step will show.
        why = await self._resumed(context, progress, data) if "resumed_from" in data else "began"
        if data.get("note"):
            why = f"{why}: {data['note']}"
        for each in _passed_over(data):
            # With another one loaded from the same storage, it is not the storage that is away.
            if each.get("reason") in (SkipReason.DAMAGED, SkipReason.GONE):
                await self._mark_damaged(context, each)
        await self._note(context, event, EventCode.RANK_STARTED, why, data, kind="attempt")

    async def _resumed(
        self, context: EventContext, progress: JobProgress, data: dict[str, Any]
    ) -> str:
        """Note the step from which a generation begins; returns it in words."""
        attempt, resumed = context.attempt, _count(data.get("resumed_from"))
        first = (resumed or 0) + 1
        generation = _count(data.get("generation")) or 1
        if generation > 1:
            since = _count(data.get("since")) or context.origin.generation or generation
            note_restart_point(attempt, generation, first, since)
        # Behind the lock: what it has measured may be stored already.
        await context.session.refresh(context.writer, ["metric_sequence"])
        begins = generation > 1 or context.writer.metric_sequence == 0
        if attempt.in_place and begins and attempt.number == context.job.attempt:
            # The attempt before, or the ranks that are lost, may have come further.
            progress.step = first - 1
        if attempt.first_step is not None and generation > 1:
            # All ranks of an earlier one are lost, and the steps that they took are not.
            first = min(first, attempt.first_step)
        attempt.first_step = first
        return "training from the first step" if resumed is None else f"resumed from step {resumed}"

    async def _stepped(self, context: EventContext, event: RankEvent, data: dict[str, Any]) -> None:
        """Note the first step of a generation; it ends the incident before it."""
        session, attempt = context.session, context.attempt
        generation, step = _count(data.get("generation")), _count(data.get("step"))
        loaded = data.get("loaded")
        if generation is None or step is None or not isinstance(loaded, int | float):
            return
        if has_stepped(attempt, generation):
            return  # reported again by ranks that continued without the first reporter
        stepped = _time(event.time, self._clock.now())
        note_first_step(
            attempt, generation, _time(loaded, stepped).timestamp(), stepped.timestamp(), step
        )
        whole = note_full_size(context.job, attempt) if generation == attempt.generation else None
        await session.flush()
        before = await session.get(Attempt, (attempt.job_id, attempt.number - 1))
        attempts = [attempt] if before is None else [before, attempt]
        incident = newest_incident(attempts, generation)
        if incident is not None:
            why = {"cause": incident.failure.cause, "steps_redone": incident.steps_redone}
            event = event.model_copy(update={"time": stepped.timestamp()})
            await self._note(
                context, event, EventCode.RECOVERED, incident.summary(), why, kind="recovered"
            )
        elif whole is not None:  # viewers read the job again after a notification
            why = {"generation": generation}
            await self._note(context, event, ReasonCode.RUNNING, whole, why, kind="attempt")

    async def _mark_damaged(self, context: EventContext, passed_over: dict[str, Any]) -> None:
        """Mark a checkpoint damaged that all hosts read: no attempt starts from it any more."""
        row = await context.session.scalar(
            select(Checkpoint).where(
                Checkpoint.job_id == context.job.id,
                Checkpoint.name == str(passed_over.get("name")),
            )
        )
        if row is not None and not row.location.startswith(STORE):
            await mark_corrupt(
                context.session, row, str(passed_over.get("text")), self._clock.now()
            )

    async def _checkpoint(self, context: EventContext, event: RankEvent) -> None:
        try:
            await self._checkpoints.record(
                context.session, context.attempt, context.job, event.data
            )
        except InvalidValueError as error:
            # Retrying would not help: note it, and continue with the rank's other events.
            log.warning("checkpoint_refused", job=context.job.id, error=error.message)
            data = {"step": _count(event.data.get("step"))}
            why = f"a checkpoint was refused: {error.message}"
            await self._note(
                context, event, EventCode.CHECKPOINT_REFUSED, why, data, kind="not_saved"
            )

    async def _gradients(self, context: EventContext, event: RankEvent) -> None:
        try:
            record = GradientRecord.model_validate(event.data)
        except ValidationError as error:
            log.warning("gradients_refused", job=context.job.id, error=str(error))
            return
        at = _time(event.time, self._clock.now())
        await gradients.store(context.session, context.attempt, record, at)
        if record.request:
            why = f"recorded the gradients of step {record.step}"
            data = {"step": record.step}
            await self._note(context, event, EventCode.GRADIENTS_RECORDED, why, data)

    async def _profile(self, context: EventContext, event: RankEvent) -> None:
        try:
            report = ProfileReport.model_validate(event.data)
        except ValidationError as error:
            log.warning("profile_refused", job=context.job.id, error=first_problem(error))
            return
        why = await profiles.store(context.session, context.attempt, report, self._clock.now())
        if why is not None:
            data = {"profile": report.number}
            await self._note(context, event, EventCode.PROFILE_REPORTED, why, data)

    async def _packages(self, context: EventContext, event: RankEvent) -> None:
        try:
            report = Packages.model_validate(event.data)
        except ValidationError as error:
            # An agent drops all events of a request that is refused.
            log.warning("packages_refused", job=context.job.id, error=first_problem(error))
            return
        await packages.store(context.session, context.attempt, report)

    async def _completed(
        self, context: EventContext, event: RankEvent, data: dict[str, Any]
    ) -> None:
        progress = await _locked_progress(context)
        steps = _count(data.get("steps"))
        if context.attempt.number == context.job.attempt:
            if steps is not None:
                progress.step = steps
            progress.metrics = {**progress.metrics, **sanitize_metrics(data.get("metrics"))}
        why = f"finished its last step, {steps}"
        await self._note(context, event, EventCode.RANK_COMPLETED, why, data)

    async def _measured(self, context: EventContext, data: dict[str, Any]) -> None:
        """Put what a planned job has taken beside what was expected of it."""
        if plans.keep_measured(context.job, data.get("measured"), context.attempt):
            await context.session.flush()

    async def _note(
        self,
        context: EventContext,
        event: RankEvent,
        code: EventCode | ReasonCode,
        reason: str,
        data: dict[str, Any],
        kind: str = "note",
    ) -> None:
        await context.session.flush()
        await record_event(
            context.session,
            context.job.id,
            time=_time(event.time, self._clock.now()),
            kind=kind,
            code=code,
            reason=reason,
            attempt=context.attempt.number,
            data={**data, "rank": event.rank},
        )


async def _locked_progress(context: EventContext) -> JobProgress:
    progress = await context.session.get(JobProgress, context.job.id, with_for_update=True)
    assert progress is not None
    return progress


_MESSAGES = {
    "note": (EventCode.RANK_NOTE, "note"),
    "network": (EventCode.NETWORK_PROBED, "note"),
    "not_saved": (EventCode.CHECKPOINT_NOT_SAVED, "not_saved"),
}
"""Code and kind of events that are stored with their message alone."""
_STEP_OF = {"stepped": "step", "completed": "steps", "paused": "step", "gradients": "step",
            "not_saved": "step"}  # fmt: skip
"""Keys of the step that an event reports."""


def _is_superseded(event: RankEvent, attempt: Attempt, first_superseded: int) -> bool:
    """Return whether an event has no effect.

    Args:
        first_superseded: from this step on, reports of these ranks are superseded.
    """
    if attempt.revoked:
        return True
    if event.kind == "checkpoint":
        return False  # its name has the token
    step = _count(event.data.get(_STEP_OF.get(event.kind, "")))
    return step is None or step >= first_superseded


def _note_lineage(
    attempt: Attempt, data: dict[str, Any], first_superseded: int, origin: Origin
) -> None:
    """Note a late report that ranks which were left out since had started from a checkpoint.

    It decides which earlier results are superseded, and not how far the job is.
    """
    generation, first = (
        _count(data.get("generation")) or 1,
        (_count(data.get("resumed_from")) or 0) + 1,
    )
    if "resumed_from" in data and generation > 1 and first < first_superseded:
        note_restart_point(
            attempt, generation, first, _count(data.get("since")) or origin.generation
        )


def _passed_over(data: dict[str, Any]) -> list[dict[str, Any]]:
    listed = data.get("passed_over")
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _suspects(event: RankEvent) -> list[str]:
    if event.kind != "started":
        return []
    bad = (SkipReason.DAMAGED, SkipReason.GONE, SkipReason.MISSING)
    listed = _passed_over(event.data)
    return [str(each.get("name")) for each in listed if each.get("reason") in bad]


def _count(value: Any) -> int | None:
    # Steps are counted on from it, and a column holds 63 bits.
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62:
        return value
    return None


def _time(seconds: float, now: datetime) -> datetime:
    """Return the rank's own time, or ours if that is nonsensical."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return now
