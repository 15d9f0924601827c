"""Sessions beside the ranks of running jobs: commands, connections to ports, stacks.

The coordinator checks and records who begins one. What passes through its tunnel is the user's and
the host's alone (`cluster.wire.tunnel`).
"""

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from trainhall.cluster.errors import (
    ConflictError,
    InvalidValueError,
    NotFoundError,
    WrongStateError,
)
from trainhall.cluster.jobs.commands import RIGHTS, Command, refusal
from trainhall.cluster.lifecycle.reasons import job_label
from trainhall.cluster.service import Service, ServiceContext, load
from trainhall.cluster.tunnels.waiting import WaitingTunnels
from trainhall.cluster.wire.sessions import (
    TICKET_SECONDS,
    AnySession,
    ExecSession,
    ExecStart,
    ForwardSession,
    StacksSession,
)
from trainhall.cluster.wire.tunnel import Socket, TunnelClosedError, TunnelError, parse
from trainhall.db.documents import Allocation, NodeAllocation
from trainhall.db.models import Attempt, Job
from trainhall.db.sanitize import sanitize_text
from trainhall.db.views import View

STACKS_SECONDS = 20.0
"""Time for a host to collect the stacks of its ranks."""
MAX_STACKS = 128 * 1024
"""Characters of the stacks of one rank that are kept."""


class RankStacks(View):
    """Stacks of a rank's threads."""

    rank: int
    node: str
    """Name of its node."""
    pid: int | None
    """Its process on that node; null where there is none."""
    text: str
    """The stacks, or why there are none."""


class Stacks(View):
    """Stacks of a job's ranks, all of the same moment."""

    attempt: int
    items: list[RankStacks]


class NoTunnelError(Exception):
    """The node does not open the tunnel, or refuses the session."""


@dataclass(frozen=True)
class Beside:
    """An attempt that runs, and those of its hosts that a session is for."""

    job: Job
    attempt: int
    hosts: Allocation

    @property
    def host(self) -> NodeAllocation:
        return self.hosts[0]


class TunnelService(Service):
    def __init__(self, context: ServiceContext, waiting: WaitingTunnels) -> None:
        super().__init__(context)
        self._waiting = waiting

    async def beside_rank(self, job_id: str, rank: int) -> Beside:
        """Return where a rank runs, beside which the caller may begin a session.

        Raises:
            ConflictError: sessions are switched off.
            WrongStateError: it does not run.
            InvalidValueError: it has no such rank.
        """
        beside = await self._beside(job_id, Command.EXEC)
        hosts = [host for host in beside.hosts if any(each.rank == rank for each in host.ranks)]
        if not hosts:
            raise _no_rank(beside, rank)
        return Beside(beside.job, beside.attempt, Allocation(hosts))

    @asynccontextmanager
    async def execute(self, beside: Beside, rank: int, start: ExecStart) -> AsyncIterator[Socket]:
        """Begin a command beside a rank; as of `_open`."""
        command = shlex.join(start.command) or "a shell"
        await self._record(beside, "job.exec", f"rank {rank}: {command}")
        session = ExecSession(
            job_id=beside.job.id, attempt=beside.attempt, rank=rank,
            command=start.command, terminal=start.terminal,
        )  # fmt: skip
        async with self._open(beside.host, session) as socket:
            yield socket

    @asynccontextmanager
    async def forward(self, beside: Beside, rank: int, port: int) -> AsyncIterator[Socket]:
        """Begin to forward connections to a port beside a rank; as of `_open`."""
        await self._record(beside, "job.forward", f"rank {rank}: port {port}")
        session = ForwardSession(job_id=beside.job.id, attempt=beside.attempt, rank=rank, port=port)
        async with self._open(beside.host, session) as socket:
            yield socket

    async def record_link(self, beside: Beside, rank: int, port: int) -> None:
        """Note in the audit log that a browser may open a port beside a rank."""
        await self._record(beside, "job.forward", f"rank {rank}: link to port {port}")

    async def stacks(self, job_id: str, ranks: list[int] | None) -> Stacks:
        """Return the stacks of ranks, as they are now.

        Args:
            ranks: None: all.

        Raises:
            WrongStateError: it does not run.
            InvalidValueError: it has no such rank.
        """
        beside = await self._beside(job_id, Command.STACKS)
        there = {each.rank for host in beside.hosts for each in host.ranks}
        wrong = sorted(set(ranks or ()) - there)
        if wrong:
            raise _no_rank(beside, wrong[0], "ranks")
        wanted = there if ranks is None else set(ranks)
        listed = ", ".join(map(str, sorted(wanted)))
        await self._record(beside, "job.stacks", "all ranks" if ranks is None else listed)
        found = await asyncio.gather(
            *(self._stacks_of(beside, host, wanted) for host in beside.hosts)
        )
        items = sorted((each for host in found for each in host), key=lambda each: each.rank)
        return Stacks(attempt=beside.attempt, items=items)

    async def _stacks_of(
        self, beside: Beside, host: NodeAllocation, wanted: set[int]
    ) -> list[RankStacks]:
        ranks = [each.rank for each in host.ranks if each.rank in wanted]
        if not ranks:
            return []
        session = StacksSession(job_id=beside.job.id, attempt=beside.attempt, ranks=ranks)
        found: dict[int, RankStacks] = {}
        why = "not available: the rank does not run at the moment"
        try:
            async with asyncio.timeout(STACKS_SECONDS), self._open(host, session) as socket:
                while (message := _text(await socket.receive()))["type"] == "stacks":
                    rank, text = int(str(message["rank"])), str(message["text"])
                    if rank in ranks:
                        found[rank] = RankStacks(
                            rank=rank, node=host.node_name, pid=int(str(message["pid"])),
                            text=sanitize_text(text, MAX_STACKS),
                        )  # fmt: skip
                if message["type"] == "error":
                    why = f"not available: {sanitize_text(str(message.get('detail')), 500)}"
        except TimeoutError:
            why = f"not available: the node did not answer within {STACKS_SECONDS:g} s"
        except (TunnelClosedError, TunnelError, NoTunnelError, KeyError, ValueError) as error:
            why = f"not available: {error}"
        without = [
            RankStacks(rank=rank, node=host.node_name, pid=None, text=why)
            for rank in ranks
            if rank not in found
        ]
        return [*found.values(), *without]

    @asynccontextmanager
    async def _open(self, host: NodeAllocation, session: AnySession) -> AsyncIterator[Socket]:
        """Open a tunnel to a host, and begin a session.

        Raises:
            NoTunnelError: the node does not open it.
        """
        async with self._waiting.expect(host.node_id) as came:
            self._notifier.notify_node(host.node_id)
            try:
                async with asyncio.timeout(TICKET_SECONDS):
                    socket = await came
            except TimeoutError:
                raise NoTunnelError(
                    f"node {host.node_name} opened no tunnel within {TICKET_SECONDS:g} s; is its "
                    "agent connected, and of this version?"
                ) from None
            await socket.send(session.model_dump_json())
            yield socket

    async def _record(self, beside: Beside, action: str, detail: str) -> None:
        """Note in the audit log that a session begins."""
        job = beside.job
        async with self._db.transaction() as session:
            self._audit(session, action, job.id, project=job.project, detail=detail)

    async def _beside(self, job_id: str, command: Command) -> Beside:
        async with self._db.session() as session:
            job = await load(session, Job, job_id)
            self._caller.check(RIGHTS[command], job, "job")
            label = job_label(job.id, job.name)
            if not self._options.exec_allowed and command is not Command.STACKS:
                raise ConflictError(
                    f"no session can begin beside {label}: the coordinator allows none "
                    "(TRAINHALL_ALLOW_EXEC=false, or its cluster is simulated)"
                )
            why = refusal(job, command)
            if why is not None:
                raise WrongStateError(f"no session can begin beside {label}: {why}", job.state)
            attempt = await session.get(Attempt, (job.id, job.attempt))
            if attempt is None:
                raise NotFoundError("attempt", f"{job.attempt} of job {job.id}")
            return Beside(job, attempt.number, attempt.allocation)


def _no_rank(beside: Beside, rank: int, field: str = "rank") -> InvalidValueError:
    ranks = sorted(each.rank for host in beside.hosts for each in host.ranks)
    allowed = f"must be a rank of the job, from {ranks[0]} to {ranks[-1]}"
    return InvalidValueError(field, rank, allowed)


def _text(message: str | bytes) -> dict[str, object]:
    if not isinstance(message, str):
        raise TunnelError("the node sent no text")
    return parse(message)
