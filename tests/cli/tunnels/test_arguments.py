"""What `exec` and `forward` are given, and what is typed into them."""

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from trainhall.cli.base.errors import UsageError
from trainhall.cli.tunnels import interactive
from trainhall.cli.tunnels.commands import _ports
from trainhall.cli.tunnels.terminal import Escape

if TYPE_CHECKING:
    from trainhall.cli.base.client import Client


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


def test_interactive_jobs_send_their_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = interactive.spec_of(90.0, ["resources.workers=2"], follow=False)
    assert spec.interactive is not None
    assert (spec.interactive.idle_seconds, spec.resources.workers, spec.code) == (90, 2, None)
    monkeypatch.setattr(interactive, "git_root", lambda here: here)
    assert interactive.spec_of(None, None, follow=False).code == str(tmp_path)
    with pytest.raises(UsageError, match="--follow"):
        interactive.spec_of(None, None, follow=True)


@pytest.mark.parametrize(
    ("states", "rm", "code"),
    [
        (["queued", "failed"], False, 1),
        (["queued", "cancelled"], True, 1),
    ],
)
def test_ended_job_is_not_entered(states: list[str], rm: bool, code: int) -> None:
    polled = [{"id": "a", "name": "job", "state": each, "reason": "why"} for each in states]
    assert interactive.run(cast("Client", None), polled[0], polled, [], rm=rm) == code
