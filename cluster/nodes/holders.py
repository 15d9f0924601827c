"""Nodes that hold an attempt, or a job: what each may send, and read.

A node's credential says which node speaks. It speaks for the attempts that ran on it alone: else
any host that joins could forge the metrics and checkpoints of all jobs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import Select, exists, select
from sqlalchemy.sql import bindparam

from trainhall.cluster.errors import NotHeldError
from trainhall.cluster.wire.writers import (
    event_file_writer,
    rank_writer,
    recovery_writer,
    tracking_writer,
)
from trainhall.db.database import Database
from trainhall.db.models import Attempt, Grant, Job
from trainhall.training.link.frames import EVENT_FILES, TRACKING

MAX_KNOWN = 10_000
"""Attempts of which the nodes are kept in memory; each frame of a metric asks."""

_KINDS = {type(None): "attempt", int: "rank", str: "writer"}
_RANK = re.compile(r"(\d{1,10})-", re.ASCII)
_NAMES = ((EVENT_FILES, event_file_writer), (TRACKING, tracking_writer), ("", rank_writer))
"""Beginnings of writers' names, longer ones first, and the functions that make these."""
_ATTEMPTS = (
    select(
        Attempt.number,
        Attempt.generation,
        Attempt.allocation,
        Attempt.generations,
        Attempt.checkpoint_plan,
    )
    .where(Attempt.job_id == bindparam("job_id"), Attempt.number >= bindparam("attempt"))
    .order_by(Attempt.number)
)
_RUNS_HERE = select(
    exists().where(Grant.job_id == bindparam("job_id"), Grant.node_id == bindparam("node_id"))
)
_NEEDS_CODE = select(
    exists().where(
        Job.code == bindparam("sha256"),
        Grant.job_id == Job.id,
        Grant.node_id == bindparam("node_id"),
    )
)


class Holders:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[tuple[str, str, int, str | int | None], None] = {}
        """Parts that were found to be held: none is taken back."""

    async def check_attempt(self, node_id: str, job_id: str, attempt: int) -> None:
        """Check that a node holds, or held, a part of an attempt, in any of its generations.

        Of an attempt that does not exist, whatever is asked for says so itself. This is true of
        its ranks and writers, too.

        Raises:
            NotHeldError: it ran on other nodes.
        """
        await self._check(node_id, job_id, attempt, None)

    async def check_rank(self, node_id: str, job_id: str, attempt: int, rank: int) -> None:
        """Check that a rank of an attempt runs, or ran, on a node, in any of its generations.

        Raises:
            NotHeldError: it ran on other nodes.
        """
        await self._check(node_id, job_id, attempt, rank)

    async def check_writer(self, node_id: str, job_id: str, attempt: int, writer: str) -> None:
        """Check that a writer is a rank's process on a node, or the node may report what rank 0
        did not: of an attempt that it holds, or that a later one on it is to search for.

        Raises:
            NotHeldError: the launch gave the node no such name.
        """
        await self._check(node_id, job_id, attempt, writer)

    async def _check(self, node_id: str, job_id: str, attempt: int, part: str | int | None) -> None:
        key = (node_id, job_id, attempt, part)
        if key in self._known:
            return
        async with self._db.session() as session:
            rows = (await session.execute(_ATTEMPTS, {"job_id": job_id, "attempt": attempt})).all()
        if not rows or rows[0].number != attempt:
            return
        share = _Share.of(node_id, rows[0])
        match part:
            case None:
                holds, what = share.is_held, f"{attempt}"
            case int():
                holds, what = part in share.ranks, f"{part} of attempt {attempt}"
            case str():
                holds = share.writes_as(job_id, attempt, part)
                holds = holds or part in _searched_for(node_id, job_id, attempt, rows[1:])
                what = f"{part} of attempt {attempt}"
        if not holds:
            raise NotHeldError(_KINDS[type(part)], f"{what} of job {job_id} on this node")
        self._known[key] = None
        while len(self._known) > MAX_KNOWN:
            self._known.pop(next(iter(self._known)))

    async def check_reader(self, node_id: str, job_id: str) -> None:
        """Check that a node runs a job now: it may read the job's checkpoints.

        Raises:
            NotHeldError: it does not.
        """
        if not await self._holds(_RUNS_HERE, job_id=job_id, node_id=node_id):
            raise NotHeldError("job", f"{job_id} on this node")

    async def check_code(self, node_id: str, sha256: str) -> None:
        """Check that a node runs a job with this code now.

        Raises:
            NotHeldError: it does not.
        """
        if not await self._holds(_NEEDS_CODE, sha256=sha256, node_id=node_id):
            raise NotHeldError("code", f"{sha256} of a job on this node")

    async def _holds(self, statement: Select[bool], **values: str) -> bool:
        async with self._db.session() as session:
            return bool(await session.scalar(statement, values))


@dataclass(frozen=True)
class _Share:
    """Part of an attempt that a node holds, or held."""

    generation: int
    """The newest one."""
    by_generation: Mapping[int, frozenset[int]]
    """Its ranks in the generations that are on record; those between the first and the newest
    ones may not be."""

    @classmethod
    def of(cls, node_id: str, attempt: Any) -> Self:
        records = {each.generation: each.allocation for each in attempt.generations}
        records[attempt.generation] = attempt.allocation
        return cls(
            attempt.generation,
            {
                generation: frozenset(
                    each.rank for host in hosts if host.node_id == node_id for each in host.ranks
                )
                for generation, hosts in records.items()
            },
        )

    @property
    def is_held(self) -> bool:
        return any(self.by_generation.values())

    @property
    def ranks(self) -> frozenset[int]:
        return frozenset().union(*self.by_generation.values())

    def writes_as(self, job_id: str, attempt: int, writer: str) -> bool:
        """Return whether the name is of one of its ranks, their tracking clients or event files, or
        for what rank 0 did not report."""
        beginning, name_of = next(each for each in _NAMES if writer.startswith(each[0]))
        found = _RANK.match(writer.removeprefix(beginning))
        rank = int(found[1]) if found else -1
        anywhere = self.ranks
        for generation in range(1, self.generation + 1):
            ranks = self.by_generation.get(generation, anywhere)
            if ranks and writer == recovery_writer(job_id, attempt, generation):
                return True
            if rank in ranks and writer == name_of(job_id, attempt, generation, rank):
                return True
        return False


def _searched_for(node_id: str, job_id: str, attempt: int, later: Iterable[Any]) -> Iterator[str]:
    """Yield the writers of an earlier attempt's reports that later attempts on a node, as their
    first host, were launched to search for."""
    for each in later:
        plan = each.checkpoint_plan.unrecorded
        if plan is not None and plan.attempt == attempt and _is_first(node_id, each):
            yield recovery_writer(job_id, attempt, plan.generation)


def _is_first(node_id: str, attempt: Any) -> bool:
    hosts = [attempt.allocation, *(each.allocation for each in attempt.generations)]
    return any(host.node_id == node_id and host.node_rank == 0 for each in hosts for host in each)
