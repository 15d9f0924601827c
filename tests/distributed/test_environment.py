"""A rank's environment and its way to the other hosts."""

import socket

import psutil
import pytest

from trainhall.distributed.environment import RankEnvironment, RankEnvironmentError, ranks_by_host
from trainhall.distributed.process_group import interface_to

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
def test_missing_variable_is_named(name: str) -> None:
    with pytest.raises(RankEnvironmentError, match=f"^{name} is not set"):
        RankEnvironment.read({k: v for k, v in GOOD.items() if k != name})


@pytest.mark.parametrize(
    ("change", "words"),
    [({"RANK": "one"}, "RANK='one' is not an integer"), ({"RANK": "2"}, "RANK=2 must lie")],
)
def test_wrong_variable_is_named(change: dict[str, str], words: str) -> None:
    with pytest.raises(RankEnvironmentError, match=words):
        RankEnvironment.read({**GOOD, **change})


def test_loopback_is_reached_by_the_loopback_interface() -> None:
    names = psutil.net_if_addrs()
    for address in ("127.0.0.1", "localhost", "::1"):
        assert interface_to(address) in names


def test_own_address_has_its_interface() -> None:
    for name, addresses in psutil.net_if_addrs().items():
        for address in addresses:
            if address.family == socket.AF_INET and not address.address.startswith("127."):
                assert interface_to(address.address) in {name, "lo", "lo0"}


def test_unknown_host_leaves_interface_to_library() -> None:
    assert interface_to("no-such-host.invalid") is None


def test_ranks_by_host_allows_uneven_hosts() -> None:
    assert ranks_by_host([(0, 3), (1, 3), (2, 3), (0, 1), (0, 2), (1, 2)]) == (
        (0, 1, 2), (3,), (4, 5),
    )  # fmt: skip
    assert ranks_by_host([(0, 2), (1, 2)]) == ((0, 1),)


@pytest.mark.parametrize(
    ("positions", "words"),
    [
        ([(0, 2), (1, 2), (0, 2)], "of 3 ranks make no hosts: a host of 2 would have the ranks 2 to"
         " 3, numbered from 0, but rank 2 has 0 of 2"),
        ([(0, 2), (0, 2), (1, 2), (1, 2)], "a host of 2 would have the ranks 0 to 1, numbered from "
         "0, but rank 0 has 0 of 2, rank 1 has 0 of 2"),
        ([(0, 2), (1, 3)], "rank 0 has 0 of 2, rank 1 has 1 of 3"),
        ([(0, 0)], "rank 0 has 0 of 0"),
    ],
)  # fmt: skip
def test_inconsistent_host_numbers_are_refused(
    positions: list[tuple[int, int]], words: str
) -> None:
    with pytest.raises(RankEnvironmentError, match=words):
        ranks_by_host(positions)
