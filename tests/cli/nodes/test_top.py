"""`trainhall top`: what is drawn, in a window of any size, and how it is left."""

import contextlib
import fcntl
import io
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from typing import Any

import pytest
from rich.console import Console
from support.cluster.cluster import TRAINHALL
from support.cluster.rest import answering
from support.waiting import eventually

from trainhall.cli.nodes import top
from trainhall.cli.nodes.top_view import view

JOB: dict[str, Any] = {
    "id": "3f2a9c51d07b", "name": "digits [bold]", "state": "running", "reason": "runs",
    "step": 120, "total_steps": 500, "world_size": 2, "priority": 0, "attempt": 1,
    "created_at": "2026-01-05T09:30:00Z", "started_at": "2026-01-05T09:30:00Z",
    "finished_at": "2026-01-05T09:31:30Z", "ran_seconds": 90.0, "running_since": None,
    "pace": 0.5, "main_metric": {"name": "loss", "value": 0.4123456, "goal": "min"},
    "metrics": {"loss": 0.4123456, "samples_per_second": 51234.5, "step_seconds": 0.5},
}  # fmt: skip
GPU: dict[str, Any] = {
    "node_id": "n", "index": 0, "kind": "cuda", "name": "NVIDIA H200", "memory_total": 2**37,
    "memory_used": 2**36, "utilization": 97.0, "temperature": 61.0, "power": 350.0,
    "job_id": JOB["id"], "busy": True,
}  # fmt: skip
SLOT = GPU | {
    "index": 1, "kind": "cpu", "temperature": None, "power": None, "job_id": None, "busy": False,
}  # fmt: skip
SEEN: dict[str, Any] = {
    "jobs": [JOB, JOB | {"id": "a" * 12, "state": "queued", "total_steps": None, "metrics": {},
                         "main_metric": None,
                         "reason": "waits for 2 GPUs"}],
    "finished": [JOB | {"id": "b" * 12, "state": "cancelled", "reason": "cancelled"}],
    "nodes": [{"name": "gpu-07", "state": "ready", "devices": [GPU, SLOT]},
              {"name": "gpu-08", "state": "suspect", "devices": [GPU]}],
    "summary": {"nodes": 2, "devices": 3, "devices_busy": 1, "jobs": {"running": 1, "failed": 0}},
}  # fmt: skip


def drawn(seen: dict[str, Any], width: int, height: int | None = None, **more: Any) -> str:
    written = io.StringIO()
    console = Console(file=written, width=width, height=height)
    console.print(view(seen, width, height, **more))
    return written.getvalue()


def line_of(text: str, *words: str) -> str:
    (found,) = [line for line in text.splitlines() if all(word in line for word in words)]
    return found


def test_top_marks_missing_devices() -> None:
    held = [GPU | {"gone": False}, GPU | {"index": 1, "gone": True}]
    seen = SEEN | {"nodes": [{"name": "gpu-09", "state": "ready", "devices": held}]}
    text = drawn(seen, 180)
    assert line_of(text, "1 NVIDIA H200, gone", JOB["id"])
    assert "gone" not in line_of(text, "0 NVIDIA H200")


def test_wide_window_shows_everything() -> None:
    text = drawn(SEEN, 180)
    assert "2 nodes, 1 of 3 devices busy; jobs: 1 running" in text
    for word in (
        "digits [bold]",
        "120/500  24 %",
        "0.4123",
        "51,230/s",
        "3 min 10 s",
        "1 min 30 s",
        "runs",
    ):
        assert word in line_of(text, JOB["id"], "running"), word
    queued = line_of(text, "a" * 12)
    assert "waits for 2 GPUs" in queued
    assert "/s" not in queued
    assert line_of(text, "b" * 12).count("cancelled") == 1
    for word in ("0 NVIDIA H200", "████████  97 %", "████░░░░ 64.0 GiB / 128.0 GiB", "61 °C",
                 "████░░░░ 350 W"):  # fmt: skip
        assert word in line_of(text, "gpu-07", "H200"), word
    assert "gpu-08 suspect" in text
    assert "1 CPU" in text


def test_top_shortens_reasons_first() -> None:
    long = "needs 900 CPU slots; the whole cluster has 2 CPU slots: " * 4
    seen = {**SEEN, "jobs": [JOB | {"reason": long}]}
    line = line_of(drawn(seen, 130), JOB["id"], "120/500")
    for word in ("digits [bold]", "running", "120/500  24 %", "51,230/s", "3 min 10 s", "needs 9"):
        assert word in line, word


def test_top_shows_steps_without_samples() -> None:
    script = JOB | {"metrics": {"loss": 1.0}, "pace": 0.25}
    line = line_of(drawn({**SEEN, "jobs": [script]}, 180), JOB["id"], "120/500")
    assert "4 steps/s" in line
    assert "1 min 35 s" in line


def test_top_drops_optional_columns_when_narrow() -> None:
    text = drawn(SEEN, 80)
    assert "WORKERS" not in text
    assert "120/500  24 %" in text
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize("height", [4, 10, 24])
def test_top_counts_rows_that_do_not_fit(height: int) -> None:
    many = {**SEEN, "jobs": [JOB | {"id": f"{i:012}"} for i in range(50)],
            "nodes": [{"name": "n", "state": "ready", "devices": [GPU] * 40}]}  # fmt: skip
    text = drawn(many, 180, height)
    assert "more jobs: `trainhall ls`" in text
    assert "more devices: `trainhall nodes ls`" in text
    assert len(text.splitlines()) <= max(height + 4, 16)


def test_top_shows_empty_cluster_and_problems() -> None:
    empty = {**SEEN, "jobs": [], "finished": [], "nodes": []}
    text = drawn(empty, 100, problem="it does not answer")
    assert "No jobs. Submit one" in text
    assert "No devices. Add a node" in text
    assert "it does not answer" in text


PATIENCE = 30.0
FINISHED = "/api/v1/training/jobs?limit=5&state=completed&state=failed&state=cancelled"


def bodies() -> dict[str, Any]:
    return {
        "/api/v1/training/jobs": {"items": [JOB], "next_cursor": None},
        FINISHED: {"items": [], "next_cursor": None},
        "/api/v1/cluster/nodes": {"items": SEEN["nodes"], "next_cursor": None},
        "/api/v1/metrics/cluster/summary": SEEN["summary"],
    }


@pytest.mark.processes
def test_without_a_terminal_one_table_is_printed() -> None:
    with answering(bodies()) as url:
        done = subprocess.run(
            [*TRAINHALL, "top", "--url", url], capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        narrow = subprocess.run(
            [*TRAINHALL, "top", "--once", "--url", url], capture_output=True, text=True,
            check=False, env={**os.environ, "COLUMNS": "80"},
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "51,230/s" in line_of(done.stdout, JOB["id"], "running")
    assert max(map(len, narrow.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout


def test_top_does_not_freeze_while_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, float]] = []

    def client(_url: str, **options: float) -> Any:
        asked.append(options)
        return contextlib.nullcontext()

    monkeypatch.setattr("trainhall.cli.base.client.Client", client)
    monkeypatch.setattr(top, "_watch", lambda _client, _every: None)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True, raising=False)
    top.top()
    assert asked == [{"attempts": 1, "timeout": top.ANSWER_SECONDS}]


@pytest.mark.processes
@pytest.mark.parametrize("leave", ["key", "signal"])
def test_top_refreshes_and_restores_the_terminal(leave: str) -> None:
    answers = bodies()
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 160, 0, 0))
    before = termios.tcgetattr(side)
    shown = b""

    def await_word(word: bytes) -> None:
        nonlocal shown
        while word not in shown:
            ready, _, _ = select.select([main], [], [], PATIENCE)
            assert ready, f"timed out waiting for {word!r}: {shown!r}"
            shown += os.read(main, 65536)

    with answering(answers) as url:
        command = [*TRAINHALL, "top", "--url", url, "--every", "0.2"]
        process = subprocess.Popen(command, stdin=side, stdout=side, stderr=side)
        await_word(b"51,230/s")
        answers["/api/v1/training/jobs"] = {"items": [JOB | {"step": 77}], "next_cursor": None}
        await_word(b"77/500")
        if leave == "key":
            os.write(main, b"q")
        else:
            process.send_signal(signal.SIGINT)
        eventually("it to end", lambda: process.poll() is not None)
    assert process.returncode == 0
    assert termios.tcgetattr(side) == before
    os.close(main)
    os.close(side)
