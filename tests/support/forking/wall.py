"""A cluster of one host whose jobs run as users of their own."""

import contextlib
import json
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
from support.cluster.up import Up
from support.forking.run_as import a_range
from support.waiting import PATIENCE, eventually


class Wall:
    """`trainhall up --run-as`, and the scripts of its jobs, in a folder that all may pass."""

    def __init__(self, folder: Path, up: Up, run_as: str) -> None:
        first, last = map(int, run_as.split("-"))
        self.folder, self.up, self.ids = folder, up, range(first, last + 1)
        self.url = up.ready()
        self.data = folder / "data"

    def submit(self, name: str, text: str, *arguments: str, **more: Any) -> str:
        path = self.folder / f"{name}.py"
        path.write_text(text)
        path.chmod(0o644)
        spec = {
            "name": name, "script": {"path": str(path), "args": list(arguments)},
            "recovery": {"max_restarts": 0}, "resources": {"device": "cpu"}, **more,
        }  # fmt: skip
        reply = httpx.post(
            f"{self.url}/api/v1/training/jobs", json=spec, headers=self.up.credential, timeout=60
        )
        assert reply.status_code == 201, reply.text
        return str(reply.json()["id"])

    def pause(self, job: str) -> None:
        """Pause it, and wait until its files are stored."""
        self._put(f"/training/jobs/{job}/pause")
        eventually("the pause", lambda: self.up.get(f"/training/jobs/{job}")["state"] == "paused")

    def resume(self, job: str) -> None:
        self._put(f"/training/jobs/{job}/resume")

    def _put(self, path: str) -> None:
        reply = httpx.put(f"{self.url}/api/v1{path}", headers=self.up.credential, timeout=60)
        assert reply.is_success, reply.text

    def lines(self, job: str) -> list[str]:
        """What a job has printed so far."""
        items = self.up.get(f"/training/jobs/{job}/logs", stream="stdout")["items"]
        return [str(item["text"]) for item in items]

    def printed(self, job: str, number: int = 0) -> Any:
        """A line that a job has printed as JSON, of those that are an object each."""

        def line() -> str | None:
            found = [text for text in self.lines(job) if text.startswith("{")]
            return found[number] if len(found) > number else None

        return json.loads(eventually(f"a line of {job}", line))

    def ended(self, job: str) -> str:
        def state() -> str | None:
            found = str(self.up.get(f"/training/jobs/{job}")["state"])
            return found if found in ("completed", "failed", "cancelled") else None

        return eventually(f"the end of {job}", state)

    def processes(self) -> set[int]:
        """Those of its jobs."""
        found = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_over = process.status() == psutil.STATUS_ZOMBIE
                found |= {process.pid} if process.uids().real in self.ids and not is_over else set()
        return found


@contextlib.contextmanager
def running_wall() -> Iterator[Wall]:
    """One of root's, which ends with the block."""
    folder = Path(tempfile.mkdtemp(prefix="trainhall-wall-"))
    folder.chmod(0o711)
    run_as = a_range()
    up = Up(
        folder, "--slots", "4", "--run-as", run_as, forked=False, module="support.forking.run_as"
    )
    try:
        yield Wall(folder, up, run_as)
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(PATIENCE) == 0
    finally:
        up.kill()
        shutil.rmtree(folder)
