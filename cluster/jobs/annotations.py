"""Tags and notes of a job, and whether it is archived; the cluster decides nothing by them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.errors import InvalidValueError
from trainhall.cluster.jobs.commands import Command, check_allowed
from trainhall.cluster.lifecycle.reasons import A_USER, EventCode
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


async def annotate_job(
    session: AsyncSession, job: Job, change: Annotation, now: datetime, *, user: str | None = None
) -> None:
    """Change a locked job, and record what changed as events.

    Args:
        user: who changes it, if that is known.

    Raises:
        InvalidValueError: there is nothing to change, or too many tags.
        WrongStateError: it is to be archived before it has ended.
    """
    _check(change)
    by = user or A_USER
    changed = [
        *_change_tags(job, change, by),
        *_change_notes(job, change, by),
        *_archive(job, change, by),
    ]
    await session.flush()
    for code, text in changed:
        await record_event(
            session, job.id, time=now, kind="note", code=code, reason=text,
            attempt=job.attempt or None, data={"user": user} if user else None,
        )  # fmt: skip


def _check(change: Annotation) -> None:
    if change == Annotation():
        message = "give tags, add_tags, remove_tags, notes or archived"
        raise InvalidValueError("tags", None, message)
    if change.tags is not None and (change.add_tags, change.remove_tags) != (None, None):
        message = "excludes add_tags and remove_tags: it replaces all tags"
        raise InvalidValueError("tags", list(change.tags), message)


def _change_tags(job: Job, change: Annotation, by: str) -> Iterator[tuple[EventCode, str]]:
    before = job.tags or []
    after = _tags_after(before, change)
    if after != before:
        job.tags = after or None
        yield EventCode.TAGS_CHANGED, _describe(before, after, by)


def _tags_after(tags: Sequence[str], change: Annotation) -> list[str]:
    if change.tags is not None:
        return unique(change.tags)
    added = list(change.add_tags or ())
    removed = {tag.lower() for tag in change.remove_tags or ()}
    after = unique([*(tag for tag in tags if tag.lower() not in removed), *added])
    if len(after) > MAX_TAGS:
        message = f"the job would have {len(after)} tags; at most {MAX_TAGS} are allowed"
        raise InvalidValueError("add_tags", added, message)
    return after


def _change_notes(job: Job, change: Annotation, by: str) -> Iterator[tuple[EventCode, str]]:
    if change.notes is not None and change.notes != (job.notes or ""):
        job.notes = change.notes or None
        yield EventCode.NOTES_CHANGED, f"notes {'changed' if change.notes else 'removed'} by {by}"


def _archive(job: Job, change: Annotation, by: str) -> Iterator[tuple[EventCode, str]]:
    if change.archived is not None and change.archived != job.archived:
        check_allowed(job, Command.ARCHIVE if change.archived else Command.UNARCHIVE)
        job.archived = change.archived
        code = EventCode.ARCHIVED if change.archived else EventCode.UNARCHIVED
        yield code, f"{code} by {by}"


def _describe(before: Sequence[str], after: Sequence[str], by: str) -> str:
    added = [tag for tag in after if tag not in before]
    removed = [tag for tag in before if tag not in after]
    parts = [
        f"{verb} {'tag' if len(tags) == 1 else 'tags'} {', '.join(tags)}"
        for verb, tags in (("added", added), ("removed", removed))
        if tags
    ]
    return f"{by} {' and '.join(parts) or 'reordered the tags'}"
