"""Nodes that hold an attempt, or a job: what each may send, and read.

A node's credential says which node speaks. It speaks for the attempts that ran on it alone: else
any host that joins could forge the metrics and checkpoints of all jobs.
"""

from sqlalchemy import Select, exists, select
from sqlalchemy.sql import bindparam

from trainhall.cluster.errors import NotFoundError
from trainhall.db.database import Database
from trainhall.db.models import Attempt, Grant, Job

MAX_KNOWN = 10_000
"""Attempts of which the nodes are kept in memory; each frame of a metric asks."""

_ALLOCATIONS = select(Attempt.allocation, Attempt.generations).where(
    Attempt.job_id == bindparam("job_id"), Attempt.number == bindparam("attempt")
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
        self._known: dict[tuple[str, int], frozenset[str]] = {}

    async def check_attempt(self, node_id: str, job_id: str, attempt: int) -> None:
        """Check that a node holds, or held, a part of an attempt, in any of its generations.

        Of an attempt that does not exist, whatever is asked for says so itself.

        Raises:
            NotFoundError: it ran on other nodes.
        """
        key = (job_id, attempt)
        if node_id in self._known.get(key, ()):
            return
        async with self._db.session() as session:
            found = (
                await session.execute(_ALLOCATIONS, {"job_id": job_id, "attempt": attempt})
            ).one_or_none()
        if found is None:
            return
        allocations = [found.allocation, *(each.allocation for each in found.generations)]
        nodes = frozenset(host.node_id for allocation in allocations for host in allocation)
        # A node may come to it with a later generation, but none leaves this set.
        self._known[key] = nodes
        while len(self._known) > MAX_KNOWN:
            self._known.pop(next(iter(self._known)))
        if node_id not in nodes:
            raise NotFoundError("attempt", f"{attempt} of job {job_id} on this node")

    async def check_reader(self, node_id: str, job_id: str) -> None:
        """Check that a node runs a job now: it may read the job's checkpoints.

        Raises:
            NotFoundError: it does not.
        """
        if not await self._holds(_RUNS_HERE, job_id=job_id, node_id=node_id):
            raise NotFoundError("job", f"{job_id} on this node")

    async def check_code(self, node_id: str, sha256: str) -> None:
        """Check that a node runs a job with this code now.

        Raises:
            NotFoundError: it does not.
        """
        if not await self._holds(_NEEDS_CODE, sha256=sha256, node_id=node_id):
            raise NotFoundError("code", f"{sha256} of a job on this node")

    async def _holds(self, statement: Select[bool], **values: str) -> bool:
        async with self._db.session() as session:
            return bool(await session.scalar(statement, values))
