"""Where ranks meet, from one generation to the next."""

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.cluster.agent_process import launch_of

from trainhall.cluster.agent.os_support import processes
from trainhall.cluster.agent.shim import rank_group, rank_process, rendezvous
from trainhall.cluster.agent.shim.supervisor import Shim
from trainhall.distributed.environment import STORE_PREFIX, RankEnvironment
from trainhall.training.link.control import Control
from trainhall.training.link.failure import Cause
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import Launch, Rendezvous
from trainhall.training.link.status import ShimStatus

ELSEWHERE = Rendezvous(address="127.0.0.3", port=29500)
TASK = {"task": {"name": "synthetic"}, "training": {"steps": 10}}


class Supervised:
    """A shim whose ranks are not started, and whose stores are no processes."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = AttemptFolder(path)
        self.stores: dict[int, bool] = {}
        """Whether each of them lives."""
        self.started: list[Rendezvous] = []
        patch.setattr(rendezvous, "start_store", self._serve)
        patch.setattr(processes, "send", self._kill)
        self.shim = Shim(self.folder, self.launch(1), fork=False)
        self.shim._control = Control(self.folder.control, create=True)
        patch.setattr(self.shim._ranks, "start", self.started.append)
        self.shim._failure = self.shim._group.open()
        self.shim._start_ranks()

    def launch(self, generation: int, address: str = "127.0.0.1", **more: Any) -> Launch:
        launch = launch_of(TASK, in_place=True, num_nodes=2, generation=generation)
        return launch.model_copy(update={"address": address, **more})

    def deliver(self, launch: Launch) -> None:
        replace_json(self.folder.launch, launch)
        self.shim._take_launch()

    def launched(self, generation: int) -> Rendezvous | None:
        """Where the ranks of a generation find that they meet."""
        data = self.folder.group(generation).read_bytes()
        return Launch.model_validate_json(data).rendezvous

    def _serve(self, folder: AttemptFolder, address: str, *, fork: bool) -> tuple[int, str, int]:
        pid = len(self.stores) + 1
        self.stores[pid] = True
        return pid, address, 29500 + pid

    def _kill(self, pids: list[int], number: int) -> None:
        self.stores |= dict.fromkeys(pids, False)

    def close(self) -> None:
        if self.shim._tracking is not None:
            self.shim._tracking.close()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervised]:
    with closing(Supervised(tmp_path, monkeypatch)) as supervised:
        yield supervised


def test_rendezvous_keeps_its_launch_without_free_port(
    host: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, model: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (first,) = host.started
    for moves in (False, True):
        # Where the host has another address by now, its ranks need another store.
        launch = host.launch(2, "127.0.0.2" if moves else "127.0.0.1")
        replace_json(host.folder.launch, launch)
        with monkeypatch.context() as patch:
            patch.setattr(rank_group, "replace_json", full)
            host.shim._take_launch()
        assert host.shim.launch.generation == 1
        assert host.stores == {1: True} | ({2: False} if moves else {})
        assert host.started == [first]
    host.shim._take_launch()
    assert host.shim.launch.generation == 2
    assert host.stores == {1: False, 2: False, 3: True}
    found = host.launched(2)
    assert found == host.started[-1]
    assert found is not None
    assert (found.address, found.port) == ("127.0.0.2", 29503)


def test_full_disk_at_the_start_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ranks").touch()  # in the way of their folders
    with closing(Supervised(tmp_path, monkeypatch)) as host:
        failure = host.shim._failure
        assert host.shim._is_over()
    assert failure is not None
    assert failure.cause is Cause.NOT_STARTED
    assert failure.message == "the ranks cannot be started: Not a directory"


def test_full_process_table_ends_the_attempt(
    host: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_rendezvous: Rendezvous) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(host.shim._ranks, "start", full)
    host.deliver(host.launch(2))
    failure = host.shim._failure
    assert failure is not None
    assert failure.cause is Cause.NOT_STARTED
    assert failure.message.startswith("the ranks cannot be started: Resource temporarily")


@pytest.mark.parametrize("content", [b"", b'{"job_id": "x"}', None])
def test_unreadable_launch_ends_the_attempt(host: Supervised, content: bytes | None) -> None:
    if content is None:
        host.folder.launch.mkdir()
    else:
        host.folder.launch.write_bytes(content)
    host.shim._take_launch()
    failure = host.shim._failure
    assert failure is not None
    assert failure.cause is Cause.STORAGE
    assert failure.message.startswith(f"{host.folder.launch} cannot be read: ")
    assert "\n" not in failure.message
    status = ShimStatus.model_validate_json(host.folder.status.read_bytes())
    assert (status.phase, status.failure, status.generation) == ("stopping", failure, 1)


def test_generations_that_begin_here_share_a_store(host: Supervised) -> None:
    host.deliver(host.launch(2))
    host.deliver(host.launch(3, ranks=[]))
    assert host.stores == {1: True}
    assert host.started[0] == host.launched(2) == host.launched(3) == host.started[-1]


def test_rendezvous_serves_a_host_that_leads_again(host: Supervised) -> None:
    """The store of the host that was the first in between may be gone with it."""
    host.deliver(host.launch(2, node_rank=1, rendezvous=ELSEWHERE))
    assert host.launched(2) == host.started[-1] == ELSEWHERE
    assert host.stores == {1: True}, "others may not have left it yet"
    host.deliver(host.launch(3))
    found = host.launched(3)
    assert found == host.started[-1]
    assert found is not None
    assert (found.address, found.port) == ("127.0.0.1", 29502)
    assert host.stores == {1: False, 2: True}


def test_each_store_has_a_prefix_of_its_own(host: Supervised) -> None:
    host.deliver(host.launch(2, "127.0.0.2"))
    first, second = (each.prefix for each in host.started)
    assert len(first) == len(second) == 23, "128 bits and a slash"
    assert first != second
    env = rank_process.environment(
        {}, host.folder, host.launch(2), host.launch(2).ranks[0], host.started[1]
    )
    assert RankEnvironment.read(env).store_prefix == second
    assert not rank_process._identifies_rank(STORE_PREFIX), "it is not shown to other processes"


@pytest.mark.parametrize(
    ("address", "resolves_to", "own", "listens_on", "ranks_use"),
    [("127.0.0.1", "127.0.0.1", "-", "127.0.0.1", "127.0.0.1"),
     ("gpu-07", "127.0.0.6", "-", "127.0.0.6", "gpu-07"),
     # Behind address translation the address is none of this host's.
     ("192.0.2.7", "192.0.2.7", "127.0.0.5", "127.0.0.5", "192.0.2.7"),
     # Debian writes the host's own name into /etc/hosts like this.
     ("gpu-07", "127.0.1.1", "127.0.0.5", "127.0.0.5", "127.0.0.5")],
)  # fmt: skip
def test_store_listens_on_one_interface_alone(
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    resolves_to: str,
    own: str,
    listens_on: str,
    ranks_use: str,
) -> None:
    def found(host: str, port: int, **_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (resolves_to, port))]

    # Addresses of a network that this test has not: 127.0.0.6 stands for one.
    is_loopback = {"127.0.0.1", "127.0.1.1"}
    monkeypatch.setattr(rendezvous, "_is_loopback", is_loopback.__contains__)
    monkeypatch.setattr(rendezvous, "_own_address_to", lambda _address, _family: own)
    monkeypatch.setattr(socket, "getaddrinfo", found)
    listener, reported = rendezvous.listen(address)
    with listener:
        assert listener.getsockname()[0] == listens_on
    assert reported == ranks_use
