"""`trainhall up` as a process beside a test: a coordinator, an agent and what they start."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
from support.cluster.web import bearer
from support.forking import forks
from support.holds import with_tests
from support.waiting import eventually

PACED = """
name: paced
task: {name: synthetic, params: {step_seconds: 0.02}}
resources: {workers: 2, device: cpu}
training: {steps: 100000, global_batch_size: 32}
recovery: {max_restarts: 0}
"""


class Up:
    """`trainhall up` in a process of its own, with its sockets below the test's folder.

    It and what it starts are forks unless it is executed: importing all that costs more than what
    most tests are about.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        forked: bool,
        module: str = "trainhall.cli.main",
    ) -> None:
        self.folder = folder
        self.runtime = folder / "run"
        self.runtime.mkdir(exist_ok=True)
        self.log = folder / "up.log"
        command = ["up", "--port", "0", "--data-dir", str(folder / "data")]
        env = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINHALL_", "DATABASE"))}
        env["TRAINHALL_RUNTIME_DIR"] = str(self.runtime)
        env["PYTHONPATH"] = with_tests()["PYTHONPATH"]
        self.process: forks.Fork | subprocess.Popen[bytes]
        with self.log.open("wb") as output, open(os.devnull, "rb") as nothing:
            if forked:
                files = [nothing, output, output]
                self.process = forks.fork(
                    forks.COMMAND, [*command, *arguments], files=files, env=env
                )
                return
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *command, *arguments],
                stdin=nothing, stdout=output, stderr=output, env=env, start_new_session=True,
            )  # fmt: skip

    @property
    def printed(self) -> str:
        return self.log.read_text()

    def url(self) -> str:
        def find() -> str | None:
            assert self.process.poll() is None, self.printed
            found = re.search(r"Trainhall is at (https?://\S+)", self.printed)
            return found.group(1) if found else None

        return str(eventually("the URL", find))

    def ready(self) -> str:
        """The URL, once the node is ready."""
        url = self.url()

        def node_is_ready() -> bool:
            assert self.process.poll() is None, self.printed
            return [n["state"] for n in self.get("/cluster/nodes")["items"]] == ["ready"]

        eventually("the node", node_is_ready)
        return url

    def running_job(self, spec: str = PACED) -> str:
        """The id of a job that takes steps."""
        base = self.ready() + "/api/v1/training/jobs"
        headers = self.credential | {"Content-Type": "application/yaml"}
        reply = httpx.post(base, content=spec, headers=headers)
        assert reply.status_code == 201, reply.text
        job = str(reply.json()["id"])
        path = f"/training/jobs/{job}"
        eventually("steps", lambda: self.get(path)["step"] > 5)
        return job

    @property
    def credential(self) -> dict[str, str]:
        """The header of its first admin."""
        return bearer(self.folder / "data")

    def get(self, path: str, **params: Any) -> Any:
        """What its API answers."""
        url = f"{self.url()}/api/v1{path}"
        return httpx.get(url, params=params, headers=self.credential).json()

    def child(self, name: str) -> psutil.Process:
        """The `coordinator` or the `agent`: the one whose output its log is."""
        log = self.folder / "data" / "logs" / f"{name}.log"
        for process in psutil.Process(self.process.pid).children():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{process.pid}/fd/1").readlink() == log:
                    return process
        raise AssertionError(f"no {name}")

    def left(self) -> list[psutil.Process]:
        """Live processes that came from this one, at any depth, however detached."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and process.pid != self.process.pid:
                    mine = process.environ().get("TRAINHALL_RUNTIME_DIR") == str(self.runtime)
                    found += [process] if mine else []
        return found

    def kill(self) -> None:
        """End it and all that it has started."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for process in self.left():
            with contextlib.suppress(psutil.Error):
                process.kill()


Start = Callable[..., Up]


@contextlib.contextmanager
def starter(folder: Path) -> Iterator[Start]:
    """Starts it in `folder`; with `forked=False` as a user's shell does."""
    started: list[Up] = []

    def start(*arguments: str, forked: bool = True) -> Up:
        started.append(Up(folder, *arguments, forked=forked))
        return started[-1]

    try:
        yield start
    finally:
        for up in started:
            up.kill()
