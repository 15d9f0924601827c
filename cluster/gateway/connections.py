"""The agents' connections: receive their reports, send them the desired state.

Messages carry state, so no single one matters: a lost report is followed by another, and
the desired state is sent again if a node's reports do not show that it was applied.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

import orjson
import structlog
from pydantic import ValidationError
from sqlalchemy import bindparam, update
from sqlalchemy.exc import DBAPIError

from trainhall.cluster.checkpoints import retention
from trainhall.cluster.errors import ProtocolMismatchError
from trainhall.cluster.gateway.assignments import assignments_for
from trainhall.cluster.gateway.channel import Channel, ChannelClosedError, close_reason
from trainhall.cluster.gateway.node_reports import store_report
from trainhall.cluster.nodes.devices import store_device_use
from trainhall.cluster.nodes.heartbeats import HeartbeatMonitor
from trainhall.cluster.service import Service, ServiceContext
from trainhall.cluster.snapshot.undeliverable import UndeliverableAttempts
from trainhall.cluster.waiting import end_tasks, run_until_one_ends
from trainhall.cluster.wire.protocol import (
    PROTOCOL_VERSION,
    CloseCode,
    Desired,
    DeviceUse,
    HostUse,
    Report,
    ReportAck,
    first_problem,
)
from trainhall.db.models import Node
from trainhall.monitoring.devices import DeviceRecorder

log = structlog.get_logger(__name__)

_LAGGING_REPORTS = 2
"""Reports in a row that do not show the newest message, until it is sent again."""
_CLOCK_TOLERANCE_SECONDS = 30.0
_READING_UPDATE = (
    update(Node)
    .where(Node.id == bindparam("of_node"))
    .values(last_seen_at=bindparam("now"), host_use=bindparam("use"))
)
MAX_REPORT_CHARACTERS = 16 * 1024 * 1024


class _ConnectionRefusedError(Exception):
    """The connection is to be closed, with this code and reason."""

    def __init__(self, code: CloseCode, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(reason)


@dataclass(eq=False)
class _Connection:
    node_id: str
    channel: Channel
    agent_id: str
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the node's desired state may have changed."""
    sent: str | None = None
    """The content of the last message, without its revision."""
    revision: int = 0
    lagging: int = 0
    acked_report: int = 0
    """Number of the newest report that was taken."""
    confirms: bool = False
    """True if ranks there depend on the node's last heartbeat: each report is confirmed."""
    address: str = ""
    stored: object = None
    """Fields of the last report that are stored at once when they change; None: store the next
    anyway."""
    excluded: set[tuple[str, int]] = field(default_factory=set)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when there is a report to read, or the other side is gone."""
    unread: str | None = None
    """Newest unread report. It holds all that the one it replaced did."""
    is_gone: bool = False
    """The other side is."""
    taking: bool = True
    """A report is being taken up."""
    sending: bool = False
    ended: CloseCode | None = None
    end_reason: str = ""


@dataclass
class _Reading:
    """Values that change all the time: stored for all nodes together, every so often."""

    host: HostUse
    devices: list[DeviceUse]


class Gateway(Service):
    def __init__(
        self,
        context: ServiceContext,
        heartbeats: HeartbeatMonitor,
        undeliverable: UndeliverableAttempts,
        tickets: Callable[[str], list[str]] = lambda _: [],
    ) -> None:
        """Prepare for connections.

        Args:
            tickets: returns those of the tunnels that a node is asked for.
        """
        super().__init__(context)
        self._tickets = tickets
        self._heartbeats = heartbeats
        self._undeliverable = undeliverable
        self._connections: dict[str, _Connection] = {}
        self._replaced: dict[str, set[str]] = {}
        """node id → agents that a newer one took over from."""
        self._readings: dict[str, _Reading] = {}
        self._recorder = DeviceRecorder()
        self._stopping = False

    @property
    def quiet(self) -> bool:
        """Return whether no message is in progress with any node; a simulation waits for it."""
        return not any(
            c.taking or c.arrived.is_set() or c.sending or c.changed.is_set()
            for c in self._connections.values()
        )

    def wake(self, node_id: str) -> None:
        """Note that this node's desired state, or its own state, changed."""
        connection = self._connections.get(node_id)
        if connection is not None:
            connection.stored = None
            connection.changed.set()

    def wake_all(self) -> None:
        for node_id in self._connections:
            self.wake(node_id)

    async def serve(self, channel: Channel, node_id: str) -> None:
        """Serve one agent's connection, from its first report until one side ends it."""
        if self._stopping:
            await _close(channel, CloseCode.STOPPING, "the coordinator is shutting down")
            return
        connection: _Connection | None = None
        listening: asyncio.Task[None] | None = None
        try:
            report = await self._first_report(channel)
            connection = self._connect(channel, node_id, report)
            listening = asyncio.create_task(self._listen(connection), name=f"listen {node_id}")
            await self._take(connection, report, first=True)
            self._heartbeats.mark_reported(node_id)
            connection.changed.set()
            await run_until_one_ends(self._take_newest(connection), self._send(connection))
            if listening.done():
                listening.result()  # what it failed of, if the other side has not just left
        except _ConnectionRefusedError as refused:
            log.info("agent_refused", node=node_id, code=refused.code, reason=refused.reason)
            await _close(channel, refused.code, refused.reason)
        except ChannelClosedError:
            pass
        finally:
            if connection is not None:
                self._disconnect(connection)
            if listening is not None:
                await end_tasks([listening])

    async def _first_report(self, channel: Channel) -> Report:
        try:
            async with asyncio.timeout(self._options.hello_seconds):
                return _parse(await channel.receive_text())
        except TimeoutError:
            seconds = self._options.hello_seconds
            raise _ConnectionRefusedError(
                CloseCode.NO_REPORT, f"no report within {seconds:g} s"
            ) from None

    def _connect(self, channel: Channel, node_id: str, report: Report) -> _Connection:
        """Register a connection. The newest agent wins; a replaced one does not reconnect."""
        replaced = self._replaced.setdefault(node_id, set())
        if report.agent_id in replaced:
            raise _ConnectionRefusedError(
                CloseCode.REPLACED,
                "a newer agent with this node's credential took over; "
                "two agents must not share a data folder",
            )
        older = self._connections.get(node_id)
        if older is not None:
            if older.agent_id != report.agent_id:
                replaced.add(older.agent_id)
            self._end(older, CloseCode.REPLACED, "a newer connection of this node took over")
        connection = _Connection(node_id, channel, report.agent_id)
        self._connections[node_id] = connection
        self._heartbeats.record(node_id)
        skew = report.time - self._clock.now().timestamp()
        if abs(skew) > _CLOCK_TOLERANCE_SECONDS:
            log.warning("node_clock_off", node=node_id, skew_s=round(skew, 1))
        log.info(
            "agent_connected", node=node_id, agent=report.agent_id, version=report.agent_version
        )
        return connection

    def _disconnect(self, connection: _Connection) -> None:
        if self._connections.get(connection.node_id) is connection:
            del self._connections[connection.node_id]
            log.info("agent_disconnected", node=connection.node_id, agent=connection.agent_id)

    def _end(self, connection: _Connection, code: CloseCode, reason: str) -> None:
        connection.ended, connection.end_reason = code, reason
        connection.changed.set()

    async def _listen(self, connection: _Connection) -> None:
        """Note when reports arrive: to store one may take longer than a node may go
        without a heartbeat."""
        try:
            while connection.ended is None:
                connection.unread = await connection.channel.receive_text()
                self._heartbeats.record(connection.node_id)
                connection.arrived.set()
        except ChannelClosedError:
            pass
        finally:
            connection.is_gone = True
            connection.arrived.set()

    async def _take_newest(self, connection: _Connection) -> None:
        """Take the newest report, again and again, and the last one before the connection ends."""
        while not connection.is_gone or connection.unread is not None:
            connection.taking = False
            await connection.arrived.wait()
            connection.taking = True
            connection.arrived.clear()
            text, connection.unread = connection.unread, None
            if connection.ended is not None:
                return
            if text is None:
                continue
            report = _parse(text)
            await self._take(connection, report, first=False)
            if connection.confirms and report.number:
                # Not through the sender, which looks into the database before it says anything.
                await connection.channel.send_text(
                    ReportAck(report=report.number).model_dump_json()
                )

    async def _take(self, connection: _Connection, report: Report, *, first: bool) -> None:
        """Take up one report: what it says of assignments at once, readings with the next flush."""
        node_id = connection.node_id
        connection.acked_report = report.number
        self._readings[node_id] = _Reading(report.host, report.device_use)
        up_to_date = first or report.revision == connection.revision
        content = (
            up_to_date,
            report.address,
            report.agent_version,
            report.devices,
            # All but what is not stored: a field that was forgotten here would be stored late.
            [a.model_copy(update={"ranks": []}) for a in report.assignments],
            report.removed,
            report.stopping,
        )
        if first or connection.stored != content:
            # Set before the transaction: what wakes this node meanwhile asks for another look.
            connection.stored = content
            try:
                await self._store(connection, report, up_to_date=up_to_date)
            except DBAPIError as error:
                log.error("report_not_stored", node=node_id, error=str(error.orig))
                if first:
                    # Nothing may be sent to a node before its own state is known.
                    raise _ConnectionRefusedError(
                        CloseCode.STOPPING, "the database is not available; connect again"
                    ) from None
                connection.stored = None
        self._resend_if_lost(connection, report)

    async def _store(self, connection: _Connection, report: Report, *, up_to_date: bool) -> None:
        node_id = connection.node_id
        async with self._db.transaction() as session:
            # A weaker lock than a drain's: a grant of the node's devices holds attempts already,
            # which are locked next here.
            node = await session.get(Node, node_id, with_for_update={"key_share": True})
            if node is None:
                raise _ConnectionRefusedError(CloseCode.REMOVED, "this node was removed")
            if self._connections.get(node_id) is not connection:
                raise _ConnectionRefusedError(
                    CloseCode.REPLACED, "a newer connection of this node took over"
                )
            stored = await store_report(
                session,
                node,
                report,
                up_to_date=up_to_date,
                clock=self._clock,
            )
        if stored.excluded or not up_to_date:
            connection.stored = None  # to be confirmed by the next report, even an equal one
        if up_to_date and connection.excluded != stored.excluded:
            connection.excluded = stored.excluded
            connection.changed.set()
        if report.removed or report.address != connection.address:
            connection.address = report.address
            connection.changed.set()
        for other in stored.nodes_to_notify:
            self.wake(other)
        if stored.changed:
            self._notifier.notify_reconciler()

    def _resend_if_lost(self, connection: _Connection, report: Report) -> None:
        if report.revision == connection.revision:
            connection.lagging = 0
            return
        connection.lagging += 1
        if connection.lagging >= _LAGGING_REPORTS:
            connection.lagging = 0
            connection.sent = None
            connection.changed.set()

    async def _send(self, connection: _Connection) -> None:
        while True:
            connection.sending = False
            await connection.changed.wait()
            connection.sending = True
            connection.changed.clear()
            if connection.ended is not None:
                raise _ConnectionRefusedError(connection.ended, connection.end_reason)
            try:
                desired = await self._desired(connection)
            except DBAPIError as error:
                log.error("assignments_not_sent", node=connection.node_id, error=str(error.orig))
                await asyncio.sleep(self._options.tick_seconds)
                connection.changed.set()
                continue
            connection.confirms = any(a.launch.isolation_seconds for a in desired.assignments)
            content = desired.model_dump_json(exclude={"revision", "acked_report"})
            if content == connection.sent:
                continue
            connection.revision += 1
            connection.sent = content
            header = {"revision": connection.revision, "acked_report": connection.acked_report}
            message = desired.model_copy(update=header)
            await connection.channel.send_text(message.model_dump_json())

    async def _desired(self, connection: _Connection) -> Desired:
        node_id = connection.node_id
        async with self._db.session() as session:
            if await session.get(Node, node_id) is None:
                raise _ConnectionRefusedError(CloseCode.REMOVED, "this node was removed")
            found, not_understood = await assignments_for(session, node_id, connection.excluded)
            desired = Desired(
                revision=0,
                heartbeat_seconds=self._options.heartbeat_seconds,
                assignments=found,
                remove=list(await retention.to_remove(session, node_id)),
                tunnels=self._tickets(node_id),
            )
        if self._undeliverable.note(not_understood):
            self._notifier.notify_reconciler()
        return desired

    async def flush_readings(self) -> None:
        """Store what all nodes last read of their hosts and devices, in one transaction."""
        if not self._readings:
            return
        readings, self._readings = self._readings, {}
        now = self._clock.now()
        async with self._db.transaction() as session:
            connection = await session.connection()
            await connection.execute(
                _READING_UPDATE,
                [
                    {"of_node": node_id, "now": now, "use": reading.host.model_dump()}
                    for node_id, reading in sorted(readings.items())
                ],
            )
            uses = [(node_id, use) for node_id, r in sorted(readings.items()) for use in r.devices]
            await store_device_use(session, uses)
            await self._recorder.record(session, now, uses)

    async def keep_flushing(self) -> None:
        """Flush until cancelled."""
        while True:
            await asyncio.sleep(self._options.telemetry_seconds)
            try:
                await self.flush_readings()
            except DBAPIError as error:
                log.error("readings_not_stored", error=str(error.orig))

    async def stop(self) -> None:
        """Take no new connection and end those that are."""
        self._stopping = True
        for connection in list(self._connections.values()):
            self._end(connection, CloseCode.STOPPING, "the coordinator is shutting down")
            await _close(connection.channel, CloseCode.STOPPING, connection.end_reason)


def _parse(text: str) -> Report:
    if len(text) > MAX_REPORT_CHARACTERS:
        raise _ConnectionRefusedError(
            CloseCode.INVALID, f"a report has at most {MAX_REPORT_CHARACTERS} characters"
        )
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _ConnectionRefusedError(
            CloseCode.INVALID, f"not a report: not JSON: {error}"
        ) from None
    # Another version may have other fields, so the version is checked first.
    version = data.get("protocol_version") if isinstance(data, dict) else None
    if isinstance(version, int) and version != PROTOCOL_VERSION:
        raise _ConnectionRefusedError(
            CloseCode.PROTOCOL, ProtocolMismatchError(version, PROTOCOL_VERSION).message
        )
    try:
        return Report.model_validate(data)
    except ValidationError as error:
        why = f"not a report: {first_problem(error)}"
        raise _ConnectionRefusedError(CloseCode.INVALID, why) from None


async def _close(channel: Channel, code: CloseCode, reason: str) -> None:
    with contextlib.suppress(ChannelClosedError):
        await channel.close(code, close_reason(reason))
