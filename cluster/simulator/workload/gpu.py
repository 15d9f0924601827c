"""A device under load: NVML's readings of an H100 with this load."""

import math
import random
from dataclasses import dataclass, field

from trainhall.cluster.wire.protocol import DeviceInfo, DeviceUse

NAME = "NVIDIA H100 80GB HBM3"
MEMORY = 81_559 * 2**20
_MIB = 2**20
_IDLE_WATTS, _LIMIT_WATTS = 71.0, 700.0
_AIR, _DEGREES_PER_WATT = 27.0, 0.062
_WARMING_SECONDS = 45.0


@dataclass(frozen=True)
class Load:
    """Load of a rank on its device."""

    utilization: float
    """0 to 100."""
    power: float
    """Share of what the device may draw, 0 to 1."""
    memory: float
    """Bytes."""


IDLE = Load(0.0, 0.0, 0.0)


@dataclass
class Gpu:
    info: DeviceInfo
    chance: random.Random = field(repr=False)
    _temperature: float = 31.0
    _read_at: float | None = None

    def use(self, load: Load, now: float) -> DeviceUse:
        """Return the reading; the temperature follows the power with the time that passed.

        Args:
            now: monotonic seconds.
        """
        busy = load.utilization > 0
        noise = self.chance.gauss(0, 1)
        utilization = min(100.0, max(0.0, load.utilization + 1.5 * noise)) if busy else 0.0
        power = (
            _IDLE_WATTS + (_LIMIT_WATTS - _IDLE_WATTS) * load.power + (12 if busy else 1) * noise
        )
        power = min(power, _LIMIT_WATTS + 4)
        target = _AIR + _DEGREES_PER_WATT * power
        passed = math.inf if self._read_at is None else now - self._read_at
        self._read_at = now
        self._temperature += (target - self._temperature) * (
            1 - math.exp(-passed / _WARMING_SECONDS)
        )
        used = 4 * _MIB if load.memory <= 0 else load.memory + 640 * _MIB
        return DeviceUse(
            index=self.info.index,
            memory_used=min(int(used), self.info.memory_total),
            utilization=float(round(utilization)),
            temperature=float(round(self._temperature + 0.3 * noise)),
            power=round(power, 1),
        )


def gpus(count: int, chance: random.Random) -> list[Gpu]:
    """Return the devices of one host."""
    return [
        Gpu(
            DeviceInfo(
                index=index,
                kind="cuda",
                name=NAME,
                uuid=f"GPU-{chance.getrandbits(32):08x}-{chance.getrandbits(16):04x}-"
                f"{chance.getrandbits(16):04x}-{chance.getrandbits(16):04x}-"
                f"{chance.getrandbits(48):012x}",
                memory_total=MEMORY,
            ),
            chance,
        )
        for index in range(count)
    ]
