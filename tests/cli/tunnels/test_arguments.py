"""What `exec` and `forward` are given, and what is typed into them."""

import pytest

from trainhall.cli.base.errors import UsageError
from trainhall.cli.tunnels.commands import _ports
from trainhall.cli.tunnels.terminal import Escape


@pytest.mark.parametrize(
    ("text", "ports"), [("8888", (8888, 8888)), ("8888:9999", (8888, 9999)), ("1:0", (1, 0))]
)
def test_ports_are_there_and_here(text: str, ports: tuple[int, int]) -> None:
    assert _ports(text) == ports


@pytest.mark.parametrize("text", ["", "0", "65536", "x", "1:", ":1", "1:2:3", "-1", "8888:70000"])
def test_wrong_ports_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="PORT"):
        _ports(text)


@pytest.mark.parametrize(
    ("typed", "leaves"),
    [
        ([b"~."], True),
        ([b"ls\r", b"~", b"."], True),
        ([b"ls ~."], False),
        ([b"\r~x."], False),
        ([b"\r~~."], False),
    ],
)
def test_escape_leaves_at_a_line_start(typed: list[bytes], leaves: bool) -> None:
    escape = Escape()
    assert any(escape.is_in(data) for data in typed) is leaves
