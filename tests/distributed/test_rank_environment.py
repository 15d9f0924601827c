"""A rank's environment and its way to the other hosts."""

import socket

import psutil
import pytest

from trainhall.distributed.environment import BadEnvironment, RankEnvironment
from trainhall.distributed.process_group import interface_towards

GOOD = {
    "RANK": "1",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "4242",
}


def test_torchruns_variables_are_read() -> None:
    found = RankEnvironment.read(GOOD)
    assert (found.rank, found.world_size, found.master_port) == (1, 2, 4242)


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(BadEnvironment, match=f"^{name} is not set"):
        RankEnvironment.read({k: v for k, v in GOOD.items() if k != name})


@pytest.mark.parametrize(
    ("change", "words"),
    [({"RANK": "one"}, "RANK='one' is no whole number"), ({"RANK": "2"}, "RANK=2 must lie")],
)
def test_a_wrong_variable_is_named(change: dict[str, str], words: str) -> None:
    with pytest.raises(BadEnvironment, match=words):
        RankEnvironment.read({**GOOD, **change})


def test_loopback_is_reached_by_the_loopback_interface() -> None:
    names = psutil.net_if_addrs()
    for address in ("127.0.0.1", "localhost", "::1"):
        assert interface_towards(address) in names


def test_an_own_address_has_its_interface() -> None:
    for name, addresses in psutil.net_if_addrs().items():
        for address in addresses:
            if address.family == socket.AF_INET and not address.address.startswith("127."):
                assert interface_towards(address.address) in {name, "lo", "lo0"}


def test_an_unknown_host_leaves_the_choice_to_the_library() -> None:
    assert interface_towards("no-such-host.invalid") is None
