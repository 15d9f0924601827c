"""What `up` is told at its start, and what it says of it."""

import pytest

from trainhall.cli import serve, up
from trainhall.cli.errors import CliError, Usage
from trainhall.cluster.agent import devices


def test_a_host_without_any_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "list_gpus", list)
    with pytest.raises(Usage, match="--slots 0 leaves this host without a device"):
        serve.check_slots(0)
    serve.check_slots(1)
    serve.check_slots(None)
    monkeypatch.setattr(devices, "list_gpus", lambda: ["a GPU"])
    serve.check_slots(0)


def test_an_address_of_another_host_is_blamed_and_not_the_port() -> None:
    with (
        pytest.raises(CliError, match="no address of this host; give another --host"),
        up._listening("192.0.2.1", 0),
    ):
        pass


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7"])
def test_who_listens_for_others_is_told_that_they_are_refused(host: str) -> None:
    told = up._who_is_refused(host, insecure=False)
    assert told is not None
    assert "of other hosts are refused" in told
    assert up._who_is_refused(host, insecure=True) is None
    assert up._who_is_refused("127.0.0.1", insecure=False) is None
