"""The devices of this host: GPUs by NVML where there are any, CPU slots otherwise."""

import contextlib
import functools
import os
import platform
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pynvml

from trainhall.cluster.agent.os_support import processes
from trainhall.cluster.wire.protocol import DeviceInfo, DeviceUse, HostUse
from trainhall.training.event_log import EventLogger

logger = EventLogger(__name__)

_NO_GPU = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES that hide all GPUs."""


@dataclass
class Devices:
    """Devices of this host, and how much of each is in use."""

    slots: int | None
    """CPU slots; None: one per core where there is no GPU."""
    infos: list[DeviceInfo] = field(default_factory=list)
    _spent: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Last sample of each rank: time (monotonic) and processor seconds."""

    def __post_init__(self) -> None:
        gpus = visible_gpus()
        slots = self.slots if self.slots is not None else (0 if gpus else os.cpu_count() or 1)
        self._cores = (os.cpu_count() or 1) / max(slots, 1)
        """A slot's share of them."""
        self.infos = [*gpus, *cpu_slots(slots, start=gpus[-1].index + 1 if gpus else 0)]
        psutil.cpu_percent(interval=None)

    @property
    def threads(self) -> int:
        """Threads of a rank on one device: its share of the host's cores, so that jobs on the other
        devices find theirs free. Threads that wait for a core spin, and with more of them than
        cores a step takes many times as long."""
        return max(1, (os.cpu_count() or 1) // max(1, len(self.infos)))

    def use(self, ranks: Mapping[int, Iterable[int]]) -> list[DeviceUse]:
        """Measure the current use of every device.

        Args:
            ranks: pids of the ranks on each CPU slot, by the slot's index.
        """
        before, self._spent = self._spent, {}
        return [
            _gpu_use(info.index)
            if info.kind == "cuda"
            else self._slot_use(info.index, ranks.get(info.index, ()), before)
            for info in self.infos
        ]

    def _slot_use(
        self, index: int, ranks: Iterable[int], before: Mapping[int, tuple[float, float]]
    ) -> DeviceUse:
        """Return a slot's use by its ranks; more than its share of the cores shows as 100."""
        memory, cores = 0, 0.0
        for pid in ranks:
            use = processes.use(pid)
            if use is None:
                continue  # it ended this moment
            now, spent = time.monotonic(), use.cpu_seconds
            memory += use.memory
            self._spent[pid] = (now, spent)
            since, earlier = before.get(pid, (now, spent))
            cores += max(spent - earlier, 0.0) / (now - since) if now > since else 0.0
        percent = min(100 * cores / self._cores, 100.0)
        return DeviceUse(index=index, memory_used=memory, utilization=percent)


@functools.cache
def has_nvml() -> bool:
    """Return whether NVIDIA's library loads; it stays open for the life of this process."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def list_gpus() -> list[DeviceInfo]:
    """Return this host's NVIDIA GPUs in NVML's order; none where there is no driver."""
    if not has_nvml():
        return []
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        logger.warning("gpus_unusable", error=error)
        return []
    found = []
    for index in range(count):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            name, uuid = pynvml.nvmlDeviceGetName(handle), pynvml.nvmlDeviceGetUUID(handle)
        except pynvml.NVMLError as error:
            logger.warning("gpu_unusable", index=index, error=error)
            continue
        # Boards that share the host's memory report none of their own.
        memory = psutil.virtual_memory().total
        with contextlib.suppress(pynvml.NVMLError):
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        found.append(
            DeviceInfo(
                index=index, kind="cuda", name=_text(name), uuid=_text(uuid), memory_total=memory
            )
        )
    return found


def visible_gpus() -> list[DeviceInfo]:
    """Return the GPUs that this process may use.

    CUDA_VISIBLE_DEVICES names them by NVML's index, or by the beginning of a UUID.
    """
    gpus = list_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return gpus
    found: list[DeviceInfo] = []
    for name in (part.strip() for part in visible.split(",")):
        match = [g for g in gpus if name == str(g.index) or _is_uuid(name, g.uuid)]
        # CUDA ignores what follows the first name that it does not know.
        if len(match) != 1:
            if gpus and name not in _NO_GPU:
                logger.warning("visible_gpu_unknown", variable="CUDA_VISIBLE_DEVICES", gpu=name)
            break
        found += match
    return sorted(found, key=lambda gpu: gpu.index)


def _is_uuid(name: str, uuid: str | None) -> bool:
    return uuid is not None and name.startswith("GPU-") and uuid.startswith(name)


def _gpu_use(index: int) -> DeviceUse:
    use = DeviceUse(index=index)
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError:
        return use
    # Each may be missing on its own: some boards report no power, partitions no utilisation.
    with contextlib.suppress(pynvml.NVMLError):
        use.memory_used = int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
    with contextlib.suppress(pynvml.NVMLError):
        use.utilization = float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    with contextlib.suppress(pynvml.NVMLError):
        kind = pynvml.NVML_TEMPERATURE_GPU
        use.temperature = float(pynvml.nvmlDeviceGetTemperature(handle, kind))
    use.power = gpu_power(index)
    return use


def gpu_power(index: int) -> float | None:
    """Return what a GPU draws, in watts; None: it reports none."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return float(pynvml.nvmlDeviceGetPowerUsage(handle)) / 1000
    except pynvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    """Decode text: older releases of the library answer in bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def cpu_slots(count: int, start: int = 0) -> list[DeviceInfo]:
    """Return CPU slots: equal shares of the host, numbered behind its GPUs."""
    name = processor_name()
    memory = psutil.virtual_memory().total // max(count, 1)
    return [
        DeviceInfo(index=start + i, kind="cpu", name=name, memory_total=memory)
        for i in range(count)
    ]


def processor_name() -> str:
    """Return the name of the host's processor, as far as it is visible."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine() or "CPU"


@functools.cache
def physical_cores() -> int:
    """Return the number of this host's cores, without hyper-threads; 0: not known."""
    return psutil.cpu_count(logical=False) or 0


def host_use(data_dir: Path) -> HostUse:
    """Measure the current use of the host; values that cannot be read stay zero."""
    use = HostUse(cores=physical_cores())
    with contextlib.suppress(psutil.Error, OSError):
        use.cpu = psutil.cpu_percent(interval=None)
        memory = psutil.virtual_memory()
        use.memory_total = memory.total
        use.memory_used = memory.total - memory.available
    with contextlib.suppress(OSError):
        disk = psutil.disk_usage(str(data_dir))
        use.disk_used, use.disk_total = disk.used, disk.total
    return use
