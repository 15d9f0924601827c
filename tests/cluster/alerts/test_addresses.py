"""Targets that would reach into the coordinator's own network."""

import asyncio
from collections.abc import Sequence

import httpcore
import pytest
from support.receiver import receiver

from trainhall.cluster.alerts.addresses import PrivateAddressError, is_public
from trainhall.cluster.alerts.public_network import PublicNetwork


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1",
        "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "::1", "::",
        "fe80::1", "fe80::1%eth0", "fd00::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
        "64:ff9b::7f00:1", "2002:7f00:1::", "2002:a00:1::1", "not an address",
    ],
)  # fmt: skip
def test_addresses_of_own_networks_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_other_addresses_are_public(address: str) -> None:
    assert is_public(address)


async def test_name_that_resolves_to_loopback_is_refused() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1", "::1"]

    network = PublicNetwork(private_too=False, resolve=resolve)
    with pytest.raises(PrivateAddressError, match=r"hook\.example \(127\.0\.0\.1, ::1\) is not a"):
        await network.connect_tcp("hook.example", 80)


async def test_connection_uses_the_checked_address() -> None:
    """A name whose server answers with another address each time is asked once."""
    asked: list[str] = []
    async with receiver() as target:

        async def resolve(host: str, port: int) -> Sequence[str]:
            asked.append(host)
            return ["127.0.0.1"]

        network = PublicNetwork(private_too=True, resolve=resolve)
        url = target.url.replace("127.0.0.1", "hook.invalid")
        async with httpcore.AsyncConnectionPool(network_backend=network) as pool:
            answer = await pool.request("POST", url, headers={"content-length": "0"})
    assert (answer.status, asked) == (204, ["hook.invalid"])


async def test_second_address_is_tried_where_the_first_refuses() -> None:
    async with receiver() as target:

        async def resolve(host: str, port: int) -> Sequence[str]:
            return ["127.0.0.2", "127.0.0.1"]

        network = PublicNetwork(private_too=True, resolve=resolve)
        stream = await network.connect_tcp("hook.invalid", int(target.url.rpartition(":")[2]))
        await stream.aclose()
        await asyncio.sleep(0)
