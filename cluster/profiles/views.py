"""Views of profiles, and what a profile has come to."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from trainhall.cluster.lifecycle.states import ACTIVE_ATTEMPT_STATES, AttemptState
from trainhall.cluster.wire.output_names import name_of
from trainhall.db.models import Attempt
from trainhall.db.tables.profiles import Profile as ProfileRow
from trainhall.db.views import Time, View
from trainhall.training.link.profiling.messages import trace_name

State = Literal["requested", "running", "completed", "failed"]


class Trace(View):
    """Chrome trace of one rank, compressed by gzip: an output of the job."""

    rank: int
    path: str
    """Path of the output."""
    size: int | None
    """Bytes; null until the node has sent it."""
    first_step: int
    last_step: int
    stall_seconds: float
    """Seconds for which the end of the profile held up training on this rank."""
    note: str
    """Why it has fewer steps than were asked for; empty if it has all."""


class ProfileProblem(View):
    """Reason for which a rank has no trace."""

    rank: int
    message: str


class Profile(View):
    """Profile of some ranks of a job, all at the same steps."""

    id: int
    """Counted from 1 for each job."""
    attempt: int
    state: State
    """`requested` until the ranks begin, at the same step; `completed` if a rank has saved its
    trace."""
    reason: str | None
    """Why it failed; null otherwise."""
    steps: int
    """Steps that were asked for."""
    ranks: list[int]
    stacks: bool
    memory: bool
    asked_by: str | None
    asked_at: Time
    first_step: int | None
    """Null until the ranks have begun."""
    ended_at: Time | None
    traces: list[Trace]
    problems: list[ProfileProblem]


class Profiles(View):
    """Profiles of a job."""

    items: list[Profile]


def has_lost_ranks(row: ProfileRow, attempt: Attempt | None) -> bool:
    """Return whether no rank reports of a profile any more: they have ended, or regrouped.

    Args:
        attempt: the newest of the job.
    """
    return (
        attempt is None
        or (attempt.number, attempt.generation) != (row.attempt, row.generation)
        or AttemptState(attempt.state) not in ACTIVE_ATTEMPT_STATES
    )


def is_open(row: ProfileRow, attempt: Attempt | None) -> bool:
    """Return whether a profile has not ended; as of `has_lost_ranks`."""
    return row.ended_at is None and not has_lost_ranks(row, attempt)


def path_of_trace(outputs_path: str, number: int, rank: int) -> str:
    """Return the path of the output that a trace is stored as."""
    return name_of(os.fsencode(trace_name(outputs_path, number, rank)))


def profile_view(
    row: ProfileRow, attempt: Attempt | None, outputs_path: str, sizes: Mapping[str, int]
) -> Profile:
    """Return the view of a profile.

    Args:
        attempt: the newest of the job.
        sizes: bytes of the job's outputs that are stored, by path.
    """
    traces = list(_traces(row, outputs_path, sizes))
    problems = [
        ProfileProblem(rank=rank, message=result.message)
        for rank, result in sorted(row.results.items())
        if not result.saved
    ]
    state: State = "requested" if row.first_step is None else "running"
    reason = None
    if not is_open(row, attempt):
        missing = [rank for rank in row.ranks if rank not in row.results]
        lost = "the rank ended, or regrouped with others, before it had reported"
        problems += [ProfileProblem(rank=rank, message=lost) for rank in missing]
        state = "completed" if traces else "failed"
    if state == "failed":
        reason = summary_of(problems)
    return Profile.of(
        row, id=row.number, state=state, reason=reason, traces=traces, problems=problems
    )


def summary_of(problems: Sequence[ProfileProblem]) -> str:
    """Return what kept ranks from saving, each message once with its ranks."""
    messages: dict[str, list[int]] = {}
    for problem in problems:
        messages.setdefault(problem.message, []).append(problem.rank)
    return "; ".join(f"{ranks_text(ranks)}: {message}" for message, ranks in messages.items())


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks in words: `rank 3`, `ranks 0, 3`."""
    return f"rank{'s' if len(ranks) != 1 else ''} {', '.join(map(str, ranks))}"


def _traces(row: ProfileRow, outputs_path: str, sizes: Mapping[str, int]) -> Iterable[Trace]:
    for rank, result in sorted(row.results.items()):
        if result.saved:
            path = path_of_trace(outputs_path, row.number, rank)
            yield Trace(
                rank=rank,
                path=path,
                size=sizes.get(path),
                first_step=result.first_step or 0,
                last_step=result.last_step or 0,
                stall_seconds=result.stall_seconds or 0.0,
                note=result.message,
            )
