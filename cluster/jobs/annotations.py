"""Tags and notes of a job, and whether it is archived; the cluster decides nothing by them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.jobs.commands import Command, check_allowed
from trainhall.cluster.lifecycle.reasons import EventCode
from trainhall.db.events import record_event
from trainhall.db.models import Job
from trainhall.training.spec.base import MAX_TAGS, unique


@dataclass(frozen=True)
class Annotation:
    """Changes to what users write on a job; None: unchanged."""

    tags: Sequence[str] | None = None
    add_tags: Sequence[str] | None = None
    remove_tags: Sequence[str] | None = None
    notes: str | None = None
    archived: bool | None = None


async def annotate_job(session: AsyncSession, job: Job, change: Annotation, now: datetime) -> None:
    """Change a locked job, and record what changed as events.

    Raises:
        InvalidValueError: there is nothing to change, or too many tags.
        WrongStateError: it is to be archived before it has ended.
    """
    tags = _changed_tags(job.tags or [], change)
    if tags != (job.tags or []):
        text = _describe(job.tags or [], tags)
        job.tags = tags or None
        await _record(session, job, EventCode.TAGS_CHANGED, text, now)
    if change.notes is not None and change.notes != (job.notes or ""):
        job.notes = change.notes or None
        text = "notes changed by a user" if change.notes else "notes removed by a user"
        await _record(session, job, EventCode.NOTES_CHANGED, text, now)
    if change.archived is not None and change.archived != job.archived:
        check_allowed(job, Command.ARCHIVE if change.archived else Command.UNARCHIVE)
        job.archived = change.archived
        code = EventCode.ARCHIVED if change.archived else EventCode.UNARCHIVED
        await _record(session, job, code, f"{code} by a user", now)


def _changed_tags(tags: list[str], change: Annotation) -> list[str]:
    adds, removes = change.add_tags, change.remove_tags
    if change.tags is not None:
        if adds is not None or removes is not None:
            message = "excludes add_tags and remove_tags: it replaces all tags"
            raise InvalidValueError("tags", list(change.tags), message)
        return unique(change.tags)
    if adds is None and removes is None and change.notes is None and change.archived is None:
        message = "give tags, add_tags, remove_tags, notes or archived"
        raise InvalidValueError("tags", None, message)
    gone = {tag.lower() for tag in removes or ()}
    changed = unique([*(tag for tag in tags if tag.lower() not in gone), *(adds or ())])
    if len(changed) > MAX_TAGS:
        message = f"the job would have {len(changed)} tags; at most {MAX_TAGS} are allowed"
        raise InvalidValueError("add_tags", list(adds or ()), message)
    return changed


def _describe(before: Sequence[str], after: Sequence[str]) -> str:
    added = [tag for tag in after if tag not in before]
    removed = [tag for tag in before if tag not in after]
    parts = [
        f"{verb} {'tag' if len(tags) == 1 else 'tags'} {', '.join(tags)}"
        for verb, tags in (("added", added), ("removed", removed))
        if tags
    ]
    return f"a user {' and '.join(parts)}" if parts else "a user reordered the tags"


async def _record(
    session: AsyncSession, job: Job, code: EventCode, text: str, now: datetime
) -> None:
    await session.flush()
    await record_event(
        session, job.id, time=now, kind="note", code=code, reason=text,
        attempt=job.attempt or None,
    )  # fmt: skip
