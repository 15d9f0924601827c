"""What an agent knows of its host and keeps in its data folder."""

import json
import os
import time
from pathlib import Path

import psutil
import pynvml
import pytest

from trainhall.cluster.agent import devices
from trainhall.cluster.agent.data_dir import REMEMBERED_JOBS, DataDir
from trainhall.cluster.agent.devices import Devices, host_use, list_gpus
from trainhall.cluster.agent.options import AgentError, AgentOptions, DataDirInUseError, OptionError
from trainhall.cluster.agent.os_support import processes
from trainhall.cluster.agent.shim import outcome
from trainhall.cluster.wire.protocol import JoinReply
from trainhall.training.fencing import FencingToken
from trainhall.training.link.launch import Command
from trainhall.training.link.status import EXIT_PAUSED, Outcome, RankState


def test_slots_share_the_host() -> None:
    found = Devices(slots=2)
    cpus = [d for d in found.infos if d.kind == "cpu"]
    assert len(cpus) == 2
    assert len({d.index for d in found.infos}) == len(found.infos)
    assert cpus[0].name
    assert cpus[0].memory_total * 2 <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_ranks_of_all_devices_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    found = {slots: Devices(slots=slots).threads for slots in (0, 1, 2, 4, 6, 12, None)}
    assert found == {0: 6, 1: 6, 2: 3, 4: 1, 6: 1, 12: 1, None: 1}


def test_slot_use_counts_its_ranks() -> None:
    found = Devices(slots=2)
    first, second = [d.index for d in found.infos if d.kind == "cpu"]
    use = {u.index: u for u in found.use({first: [os.getpid()], second: [2**22 + 1]})}
    memory, utilization = use[first].memory_used, use[first].utilization
    assert memory is not None
    assert memory > 1024 * 1024
    assert utilization is not None
    assert 0 <= utilization <= 100
    # A pid that is gone uses nothing.
    assert (use[second].memory_used, use[second].utilization) == (0, 0.0)


def test_slot_use_covers_time_since_last_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    clock, spent = [100.0], {7: 50.0, 8: 9.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(
        processes, "use", lambda pid: processes.Use(spent[pid], 1000) if pid in spent else None
    )
    found = Devices(slots=2)
    first, second = [d.index for d in found.infos if d.kind == "cpu"]
    ranks = {first: [7, 8], second: [9]}

    def look() -> list[tuple[int | None, float | None]]:
        use = {u.index: u for u in found.use(ranks)}
        return [(use[index].memory_used, use[index].utilization) for index in (first, second)]

    assert look() == [(2000, 0.0), (0, 0.0)]
    clock[0] += 2.0
    spent.update({7: 51.0, 8: 10.0, 9: 5.0})
    assert look() == [(2000, 50.0), (1000, 0.0)], "two of four cores are the slot's"
    clock[0] += 2.0
    spent.update({7: 2.0, 8: 20.0})
    assert look() == [(2000, 100.0), (1000, 0.0)], "the first pid is another process's by now"


def test_process_use_matches_psutil() -> None:
    process = psutil.Process()
    used = processes.use(process.pid)
    assert used is not None
    assert used.memory == pytest.approx(process.memory_info().rss, rel=0.5)
    assert used.cpu_seconds == pytest.approx(sum(process.cpu_times()[:2]), abs=1.0)
    assert processes.use(2**22 + 1) is None


class FakeNvml:
    """Two boards, the second of which tells little."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(*_: object) -> None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        class Memory:
            total, used = 80 * 2**30, 3 * 2**30

        class Rates:
            gpu = 42

        def rates(handle: int) -> Rates:
            if handle == 1:
                missing()
            return Rates()

        names = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetName": lambda _: b"Board",
            "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
            "nvmlDeviceGetMemoryInfo": lambda _: Memory,
            "nvmlDeviceGetUtilizationRates": rates,
            "nvmlDeviceGetTemperature": lambda *_: 55,
            "nvmlDeviceGetPowerUsage": lambda handle: 250_000 if handle == 0 else missing(),
        }
        for name, function in names.items():
            monkeypatch.setattr(pynvml, name, function)
        devices.has_nvml.cache_clear()


def test_gpus_report_available_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeNvml(monkeypatch)
    try:
        found = Devices(slots=None)
        assert [(d.index, d.kind, d.name, d.uuid) for d in found.infos] == [
            (0, "cuda", "Board", "GPU-0"),
            (1, "cuda", "Board", "GPU-1"),
        ]
        assert [d.kind for d in Devices(slots=1).infos] == ["cuda", "cuda", "cpu"]
        first, second = found.use({})
        assert (first.utilization, first.power, first.temperature) == (42.0, 250.0, 55.0)
        assert first.memory_used == 3 * 2**30
        assert (second.utilization, second.power) == (None, None)
    finally:
        devices.has_nvml.cache_clear()


@pytest.mark.parametrize(
    ("visible", "indices"),
    [("1", [1]), ("1,0", [0, 1]), ("GPU-1", [1]), ("GPU-", []), ("0,7,1", [0]), ("MIG-a", []),
     ("-1", []), ("", [])],
)  # fmt: skip
def test_devices_list_only_visible_gpus(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    visible: str,
    indices: list[int],
) -> None:
    FakeNvml(monkeypatch)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    try:
        found = Devices(slots=1).infos
        assert [d.index for d in found if d.kind == "cuda"] == indices
        assert len({d.index for d in found}) == len(found)
        assert bool(caplog.records) == (visible in ("GPU-", "0,7,1", "MIG-a"))
    finally:
        devices.has_nvml.cache_clear()


def test_devices_list_shared_memory_boards_but_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FakeNvml(monkeypatch)

    def handle(index: int) -> int:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    def memory(_: int) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", handle)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", memory)
    try:
        (found,) = list_gpus()
        assert (found.index, found.memory_total) == (1, psutil.virtual_memory().total)
    finally:
        devices.has_nvml.cache_clear()


def test_driver_that_fails_offers_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeNvml(monkeypatch)

    def broken() -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", broken)
    try:
        assert list_gpus() == []
    finally:
        devices.has_nvml.cache_clear()


def test_host_is_measured(tmp_path: Path) -> None:
    use = host_use(tmp_path)
    assert 0 < use.memory_used <= use.memory_total
    assert 0 < use.disk_used <= use.disk_total
    assert 0 <= use.cores <= (os.cpu_count() or 1)


def test_data_folder_has_one_agent(tmp_path: Path) -> None:
    folder = DataDir(tmp_path / "agent")
    with folder.locked():
        assert folder.path.stat().st_mode & 0o777 == 0o700
        with pytest.raises(DataDirInUseError, match="another agent works in"), folder.locked():
            pass
    with folder.locked():
        pass
    (tmp_path / "file").touch()
    with pytest.raises(AgentError, match="cannot be used"), DataDir(tmp_path / "file").locked():
        pass


def test_credential_is_for_one_coordinator_and_secret(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    assert folder.read_credential("http://a") is None
    folder.write_credential("http://a", JoinReply(node_id="n", credential="secret"))
    kept = folder.read_credential("http://a")
    assert kept is not None
    assert kept.credential == "secret"
    assert folder.read_credential("http://b") is None
    assert (tmp_path / "agent.json").stat().st_mode & 0o777 == 0o600
    (tmp_path / "agent.json").write_text("{")
    assert folder.read_credential("http://a") is None
    folder.forget_credential()
    assert not (tmp_path / "agent.json").exists()


def test_launched_attempts_are_remembered_within_bounds(tmp_path: Path) -> None:
    folder = DataDir(tmp_path)
    assert folder.read_launched() == {}
    folder.write_launched(
        {str(i): FencingToken(str(i), 1, i + 1) for i in range(REMEMBERED_JOBS + 5)}
    )
    launched = folder.read_launched()
    assert len(launched) == REMEMBERED_JOBS
    newest = str(REMEMBERED_JOBS + 4)
    assert launched[newest] == FencingToken(newest, 1, REMEMBERED_JOBS + 5)
    (tmp_path / "launched.json").write_text(json.dumps([1]))
    with pytest.raises(AgentError, match="might run twice"):
        folder.read_launched()


@pytest.mark.parametrize(
    "url",
    [
        "lab:8000", "ftp://lab", "http://", "", "http://lab:port", "http://lab:99999",
        "http://lab:0", "http://[::1",
    ],
)  # fmt: skip
def test_coordinator_has_an_address(url: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="not a coordinator's address"):
        AgentOptions(coordinator=url, data_dir=tmp_path)


def test_address_leads_to_the_coordinator(tmp_path: Path) -> None:
    options = AgentOptions(coordinator="http://127.0.0.1:8000/", data_dir=tmp_path)
    assert options.own_address() == "127.0.0.1"
    assert options.url == "http://127.0.0.1:8000/api/v1/agent"
    assert options.websocket_url == "ws://127.0.0.1:8000/api/v1/agent/connect"
    secure = AgentOptions(coordinator="https://lab", data_dir=tmp_path, address="10.0.0.7")
    assert secure.websocket_url == "wss://lab/api/v1/agent/connect"
    assert secure.own_address() == "10.0.0.7"


def ended(code: int | None = None, number: int | None = None, rank: int = 0) -> RankState:
    return RankState(rank=rank, pid=1, finished_at=1.0, exit_code=code, signal=number)


def work(
    *, script: bool = False, asked: Command = Command.RUN, signalled: bool = False
) -> outcome.AttemptContext:
    return outcome.AttemptContext(script, asked, signalled)


@pytest.mark.parametrize(
    ("codes", "how", "expected"),
    [
        ((0, 0), work(), Outcome.COMPLETED),
        ((EXIT_PAUSED, EXIT_PAUSED), work(asked=Command.PAUSE), Outcome.PAUSED),
        ((EXIT_PAUSED, EXIT_PAUSED), work(), Outcome.PAUSED),
        ((84, 84), work(asked=Command.STOP), Outcome.STOPPED),
        ((84, 84), work(), Outcome.STOPPED),
        ((0, 0), work(asked=Command.STOP), Outcome.COMPLETED),
        ((0, EXIT_PAUSED), work(asked=Command.PAUSE), Outcome.FAILED),
        ((0,), work(script=True, asked=Command.PAUSE, signalled=True), Outcome.PAUSED),
        ((1,), work(script=True, asked=Command.STOP, signalled=True), Outcome.STOPPED),
        ((0,), work(script=True), Outcome.COMPLETED),
    ],
)
def test_outcomes(codes: tuple[int, ...], how: outcome.AttemptContext, expected: Outcome) -> None:
    ranks = [ended(code, rank=i) for i, code in enumerate(codes)]
    assert outcome.outcome_of(ranks, how, None)[0] is expected


def test_failure_blames_rank_ended_by_signal() -> None:
    found = outcome.first_failing([ended(1, rank=0), ended(number=9, rank=1)], work())
    assert found is not None
    assert found.rank == 1
    assert outcome.first_failing([ended(1)], work(asked=Command.STOP)) is None
    assert outcome.first_failing([ended(EXIT_PAUSED)], work(script=True)) is not None


def test_this_process_is_not_among_its_own_marked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(processes.MARK, str(tmp_path))
    assert os.getpid() not in processes.marked(tmp_path)
