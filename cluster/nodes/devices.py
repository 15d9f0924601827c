"""The devices of a node as rows: which there are (rare) and what they do (all the time)."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from trainhall.cluster.wire.protocol import DeviceInfo, DeviceUse
from trainhall.db.models import Device, Grant
from trainhall.db.sanitize import sanitize_text

_OF_NODE = select(Device).where(Device.node_id == bindparam("at_node"))
_table = Device.__table__
_STORE_USE = (
    update(Device)
    .where(_table.c.node_id == bindparam("at_node"), _table.c.index == bindparam("at_index"))
    .values(
        memory_used=bindparam("memory_used"),
        utilization=bindparam("utilization"),
        temperature=bindparam("temperature"),
        power=bindparam("power"),
    )
)


async def store_devices(session: AsyncSession, node_id: str, devices: Sequence[DeviceInfo]) -> bool:
    """Make the rows match; whether they did not.

    A device that is gone but held stays, marked as gone, until its attempt has given it back: the
    grant needs the row, and nothing else is ever granted there.
    """
    changed = False
    rows = {d.index: d for d in await session.scalars(_OF_NODE, {"at_node": node_id})}
    reported = {device.index: device for device in devices}
    for index, info in reported.items():
        row = rows.get(index)
        if row is None:
            row = Device(node_id=node_id, index=index)
            session.add(row)
        values = info.model_dump() | {"gone": False}
        values["name"] = sanitize_text(info.name, 128)
        values["uuid"] = sanitize_text(info.uuid, 128) if info.uuid else info.uuid
        for name, value in values.items():
            if getattr(row, name) != value:
                setattr(row, name, value)
                changed = True
    gone = set(rows) - set(reported)
    if gone:
        held = set(
            await session.scalars(select(Grant.device_index).where(Grant.node_id == node_id))
        )
        for index in gone & held:
            if not rows[index].gone:
                _mark_gone(rows[index])
                changed = True
        if gone - held:
            await session.execute(
                delete(Device).where(Device.node_id == node_id, Device.index.in_(gone - held))
            )
            changed = True
    await session.flush()
    return changed


def _mark_gone(device: Device) -> None:
    """Mark a device whose state is unknown now."""
    device.gone = True
    device.memory_used = device.utilization = device.temperature = device.power = None


async def forget_device_use(session: AsyncSession, node_id: str) -> None:
    """Forget what the devices of a node did last: it is unreachable for long."""
    await session.execute(
        update(Device)
        .where(Device.node_id == node_id)
        .values(memory_used=None, utilization=None, temperature=None, power=None)
    )


async def store_device_use(
    session: AsyncSession, readings: Sequence[tuple[str, DeviceUse]]
) -> None:
    """Store what devices of any nodes do right now, in one statement."""
    if not readings:
        return
    parameters: list[dict[str, Any]] = [
        {
            "at_node": node_id,
            "at_index": use.index,
            "memory_used": use.memory_used,
            "utilization": use.utilization,
            "temperature": use.temperature,
            "power": use.power,
        }
        for node_id, use in readings
    ]
    connection = await session.connection()
    await connection.execute(_STORE_USE, parameters)
