"""A real cluster of several hosts, each of which a scenario may kill, freeze, cut off and start."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from support.cluster.cluster import FINAL, TRAINHALL, Cluster, Program
from support.forking import forks
from support.waiting import PATIENCE, eventually

from chaos import coordinator, guard
from chaos.network import ClientInside, Network, network, why_not_root

_GROUPS = Path("/sys/fs/cgroup")
LOST_SECONDS = 4.0
QUICK = (
    ("heartbeat_seconds", 0.3), ("suspect_after_seconds", 1.5),
    ("lost_after_seconds", LOST_SECONDS),
)  # fmt: skip
"""Times of a cluster that gives a silent node up while one can watch."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a scenario needs."""

    hosts: int = 2
    slots: int = 2
    """Of each host."""
    own_network: bool = False
    """Each host has an address and a link of its own."""
    small_disks: bool = False
    """Data of the coordinator and of each host are on disks of their own, of 64 MiB."""
    times: tuple[tuple[str, float], ...] = ()
    """What differs from the coordinator's options."""


PATIENT = Shape()
"""With the times of production: a busy machine may take its time to start an agent again."""


class Host:
    """An agent and all that runs because of it."""

    def __init__(
        self,
        name: str,
        folder: Path,
        command: list[str] | str,
        arguments: list[str],
        env: dict[str, str],
    ) -> None:
        self.name = name
        self.data = folder / name
        self.runtime = folder / f"run-{name}"
        self.runtime.mkdir()
        env = {**env, "TRAINHALL_RUNTIME_DIR": f"{self.runtime}/"}
        arguments = [*arguments, "--data-dir", str(self.data)]
        self.agent = Program(name, arguments, folder, env, command)

    def processes(self) -> list[psutil.Process]:
        """Every live process of the host, the agent's first, however detached."""
        return _with_runtime(self.runtime)

    def power_off(self) -> None:
        """Everything ends in the same instant, and nothing is told to anybody."""
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in self.processes():
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
        eventually(f"{self.name} to be off", lambda: not self.processes())
        if self.agent.process is not None:
            self.agent.process.wait()

    def power_on(self) -> None:
        self.agent.start()


class ChaosCluster(Cluster):
    """A coordinator and hosts."""

    def __init__(
        self,
        folder: Path,
        shape: Shape,
        net: Network | None = None,
        database_url: str | None = None,
        *,
        forked: bool = False,
    ) -> None:
        """`forked`: its programs are forks where they can be, which is cheaper to start."""
        super().__init__(folder, database_url, shape.slots)
        self.shape = shape
        self.net = net
        prefix: list[str] = []
        env = {"TRAINHALL_RUNTIME_DIR": f"{self.runtime}/"}
        self.forked = forked
        if net is not None:
            prefix = net.coordinator.prefix
            env[forks.NETWORK] = net.coordinator.space
            self.http.close()
            self.http = ClientInside(net.coordinator.space, timeout=PATIENCE)
        address = "127.0.0.1" if net is None else net.coordinator.address
        self.agents_url = f"http://{address}:{self.port}"
        self.coordinator = Program(
            "coordinator",
            [json.dumps(dict(shape.times)), *self._server_arguments()[1:], "--host", address],
            folder,
            env,
            f"{coordinator.__name__}:main"
            if self.forked
            else [*prefix, sys.executable, "-P", coordinator.__file__],
        )
        if net is not None:
            # The API is served on loopback alone, agents on any address.
            self.coordinator.arguments[-1] = "0.0.0.0"
        self.hosts: list[Host] = []

    def start(self) -> None:
        self.start_coordinator()
        for number in range(self.shape.hosts):
            self.add_host(number)
        eventually("every node to be ready", self.all_are_ready)

    def add_host(self, number: int) -> None:
        name = host_name(number)
        token = self.post("/cluster/nodes", json={"name": name})["join_token"]
        address = f"127.0.0.{number + 2}"
        command, env = list(TRAINHALL), {}
        if self.net is not None:
            network_host = self.net.hosts[number]
            address, command = network_host.address, [*network_host.prefix, *TRAINHALL]
            env = {forks.NETWORK: network_host.space}
        arguments = [
            "agent", "--coordinator", self.agents_url, "--token", token,
            "--slots", str(self.slots), "--address", address,
        ]  # fmt: skip
        host = Host(name, self.folder, forks.TRAINHALL if self.forked else command, arguments, env)
        self.hosts.append(host)
        host.power_on()

    def node(self, host: Host) -> Any:
        nodes = self.get("/cluster/nodes")["items"]
        return next(node for node in nodes if node["name"] == host.name)

    def all_are_ready(self) -> bool:
        for host in self.hosts:
            assert host.agent.process is not None
            assert host.agent.process.poll() is None, host.agent.output()
        nodes = self.get("/cluster/nodes")["items"]
        return all(node["state"] == "ready" for node in nodes)

    def hosts_of(self, job_id: str) -> list[Host]:
        """Those that hold ranks of the job's newest attempt."""
        newest = self.attempts(job_id)[-1]
        names = {host["node_name"] for host in newest["allocation"]}
        return [host for host in self.hosts if host.name in names]

    def attempts(self, job_id: str) -> list[Any]:
        """Oldest first."""
        return self.everything(f"/training/jobs/{job_id}/attempts")

    def events(self, job_id: str) -> list[Any]:
        return self.everything(f"/training/jobs/{job_id}/events")

    def everything(self, path: str) -> list[Any]:
        """All pages of a list."""
        items: list[Any] = []
        params: dict[str, Any] = {"limit": 200}
        while True:
            page = self.get(path, params=params)
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            params["cursor"] = page["next_cursor"]

    def first_step(self, job_id: str) -> float | None:
        """When the newest generation took its first step, in seconds since the epoch."""
        began = _seconds(self.attempts(job_id)[-1]["generations"][-1]["time"])
        reply = self.get(f"/metrics/jobs/{job_id}", params={"names": "loss", "max_points": 100_000})
        times = [_seconds(p["time"]) for series in reply["series"] for p in series["points"]]
        return min((at for at in times if at > began), default=None)

    def ranks(self, job_id: str, attempt: int | None = None) -> list[psutil.Process]:
        """The live ranks of one attempt, or of all, in the order of their numbers."""
        found = []
        for process in self.rank_processes(job_id):
            with contextlib.suppress(psutil.Error):
                environ = process.environ()
                # What a script's rank starts has its environment, but leads no session.
                leads = os.getsid(process.pid) == process.pid
                if leads and attempt in (None, int(environ["TRAINHALL_ATTEMPT"])):
                    found.append((int(environ["RANK"]), process))
        return [process for _, process in sorted(found, key=lambda pair: pair[0])]

    def settle(self) -> None:
        """Give the cluster to the next scenario: all free, all there."""
        self.cancel_everything()
        eventually("every node to be ready again", self.all_are_ready)
        eventually("every rank to be gone", lambda: not self._live_ranks())

    def _live_ranks(self) -> list[int]:
        return [p.pid for host in self.hosts for p in host.processes() if _is_rank(p)]

    def cancel_everything(self) -> None:
        live = [job for job in self.everything("/training/jobs") if job["state"] not in FINAL]
        for job in live:
            self.http.delete(f"{self.url}/api/v1/training/jobs/{job['id']}")
        for job in live:
            self.wait_for(job["id"], *FINAL)

    def story(self, job_id: str) -> str:
        lines = [f"{e['time']} {e['kind']} {e['reason']}" for e in self.events(job_id)]
        logs = self.get(f"/training/jobs/{job_id}/logs", params={"tail": 40})["items"]
        lines += [f"rank {line['rank']} {line['stream']}: {line['text']}" for line in logs]
        return "\n".join(lines)

    def said(self) -> str:
        """The last words of its programs."""
        programs = (self.coordinator, *(host.agent for host in self.hosts))
        return "\n".join(f"--- {p.name}, start {p.starts}\n{p.output()[-3000:]}" for p in programs)

    def stop(self) -> None:
        for program in (*(host.agent for host in self.hosts), self.coordinator):
            if program.process is not None and program.process.poll() is None:
                program.stop()


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _is_rank(process: psutil.Process) -> bool:
    try:
        return "RANK" in process.environ()
    except psutil.Error:
        return False


def _with_runtime(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get("TRAINHALL_RUNTIME_DIR") == f"{folder}/":
                found.append(process)
    return found


def host_name(number: int) -> str:
    return f"host-{number}"


def memory_group() -> Path | None:
    """A memory control group for this process to make; the guard of its clusters removes it."""
    # Version 1 of control groups has a tree for memory alone.
    for tree in (_GROUPS / "memory", _GROUPS):
        if (tree / "cgroup.procs").exists():
            return tree / f"trainhall-chaos-{os.getpid()}"
    return None


def memory_limit(group: Path) -> Path | None:
    """The file of a group that takes its limit in bytes; None: this group limits no memory."""
    files = (group / name for name in ("memory.max", "memory.limit_in_bytes"))
    return next((file for file in files if file.exists()), None)


def why_no_memory_limit() -> str | None:
    """Why ranks cannot be given a memory limit here."""
    if why := why_not_root():
        return why
    group = memory_group()
    if group is None:
        return f"there are no control groups in {_GROUPS}"
    try:
        group.mkdir()
    except OSError as error:
        return f"no control group can be made: {error}"
    try:
        return "its control groups do not limit memory" if memory_limit(group) is None else None
    finally:
        group.rmdir()


def _mount_small_disk(folder: Path) -> None:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", folder], check=True)


@contextmanager
def chaos_cluster(
    folder: Path,
    shape: Shape,
    *,
    database_url: str | None = None,
    forked: bool = False,
) -> Iterator[ChaosCluster]:
    """A running cluster. Whatever happens to this process, nothing of the cluster stays.

    Raises:
        NetworkNotAllowedError: this machine does not let us make the network that is asked for.
    """
    folder.mkdir(parents=True)
    groups = [path for path in (memory_group(),) if path is not None]
    with ExitStack() as stack:
        stack.enter_context(guard.guarded(folder, *groups))
        if shape.small_disks:
            for name in ("coordinator", *(host_name(i) for i in range(shape.hosts))):
                _mount_small_disk(folder / name)
        net = stack.enter_context(network(shape.hosts)) if shape.own_network else None
        cluster = ChaosCluster(folder, shape, net, database_url, forked=forked)
        stack.callback(cluster.http.close)
        cluster.start()
        yield cluster
        cluster.stop()
