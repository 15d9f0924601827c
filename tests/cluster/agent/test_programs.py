"""Programs that an agent runs for jobs, which decide what they print."""

import os

import pytest

from trainhall.cluster.agent.os_support import programs


@pytest.mark.processes
async def test_endless_output_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MAX_OUTPUT_BYTES", 1000)
    ended = await programs.run(
        ["sh", "-c", "seq 1 100000; cat >&2"],
        environment=os.environ, cwd="/", running=set(), stdin=b"read",
    )  # fmt: skip
    assert (ended.code, len(ended.stdout), ended.stderr) == (0, 1000, b"read")
    assert ended.stdout.endswith(b"99999\n100000\n")
