"""A host with GPUs: it reports what they do, and plans."""

import random

from trainhall import __version__
from trainhall.cluster.simulator.host import Host
from trainhall.cluster.simulator.workload import planning
from trainhall.cluster.simulator.workload.gpu import IDLE, gpus
from trainhall.cluster.simulator.workload.work import load_of
from trainhall.cluster.wire.protocol import DeviceUse, HostUse
from trainhall.training.link.launch import Launch
from trainhall.training.spec.plan import ChosenPlan

_TIB = 2**40


class GpuHost(Host):
    agent_version = __version__

    def __post_init__(self) -> None:
        super().__post_init__()
        # Readings have a stream of their own: how often they are read must change nothing else.
        self._noise = random.Random(self.chance.getrandbits(64))
        self._gpus = gpus(self.slots, self._noise)
        self.devices = [gpu.info for gpu in self._gpus]
        self._disk_used = self.chance.uniform(2.0, 5.5)
        self._power_factor = self.chance.uniform(0.6, 1.3)
        """Load factor of its data loading on the host's processors and memory."""

    def device_use(self) -> list[DeviceUse]:
        loads = {rank.device[1]: load_of(rank) for shim in self.shims() for rank in shim.running}
        now = self.clock.monotonic()
        return [gpu.use(loads.get(gpu.info.index, IDLE), now) for gpu in self._gpus]

    def host_use(self) -> HostUse:
        busy = sum(len(shim.running) for shim in self.shims())
        return HostUse(
            cpu=round(
                min(100.0, 1.2 + 4.5 * busy * self._power_factor + self._noise.uniform(0, 3)), 1
            ),
            memory_used=int(
                (0.05 + 0.05 * busy * self._power_factor + 0.003 * self._noise.random()) * 2 * _TIB
            ),
            memory_total=2 * _TIB,
            disk_used=int(self._disk_used * _TIB),
            disk_total=14 * _TIB,
            cores=128,
            container_engine="podman 5.4.2",
        )

    def plan(self, launch: Launch) -> ChosenPlan:
        return planning.plan(launch)
