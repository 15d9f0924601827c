"""A real cluster on loopback for a test: `trainhall server` and `trainhall agent` as processes."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
from support.database import migrated_file
from support.forking import forks
from support.holds import with_tests
from support.ports import reserve
from support.waiting import PATIENCE, eventually

from trainhall.api.host.credentials import admin_token

TRAINHALL = [sys.executable, "-m", "trainhall.cli.main"]
FINAL = {"completed", "failed", "cancelled"}


class Program:
    """One of Trainhall's processes, with its output in a file."""

    def __init__(
        self,
        name: str,
        arguments: list[str],
        folder: Path,
        env: dict[str, str],
        command: list[str] | str = forks.TRAINHALL,
    ) -> None:
        """`command` is executed, or forked where it names a `package.module:function`."""
        self.name = name
        self.command = command
        self.arguments = arguments
        self.folder = folder
        self.env = env
        self.starts = 0
        self.process: subprocess.Popen[bytes] | forks.Fork | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.{self.starts}.log"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        self.starts += 1
        env = {**os.environ, **self.env}
        with self.log.open("wb") as output, open(os.devnull, "rb") as nothing:
            if isinstance(self.command, str):
                target = self.command
                if self.arguments[0] == "agent":
                    target, env = forks.AGENT, env | forks.agent_environment()
                files = [nothing, output, output]
                self.process = forks.fork(target, self.arguments, files=files, env=env)
            else:
                self.process = subprocess.Popen(
                    [*self.command, *self.arguments],
                    stdin=nothing, stdout=output, stderr=output, env=env, start_new_session=True,
                )  # fmt: skip

    def ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it without a chance to tidy up, as a power cut to this process alone would."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end, and wait until it has."""
        assert self.process is not None
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} ignored SIGTERM:\n{self.output()}") from None

    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Cluster:
    """A coordinator and one agent, each of which a test may kill and start again."""

    def __init__(
        self,
        folder: Path,
        database_url: str | None = None,
        slots: int = 2,
        *,
        forks_scripts: bool = False,
    ) -> None:
        """Without a URL the database is a SQLite file whose tables are there already, which the
        coordinator uses without threads. With `forks_scripts` jobs' scripts and planners have
        torch imported when they begin."""
        self.folder = folder
        # Sockets live below it, so that a test can see that none is left.
        self.runtime = folder / "run"
        self.runtime.mkdir(parents=True)
        env = {"TRAINHALL_RUNTIME_DIR": str(self.runtime)}
        self._database = ["--database-url", database_url] if database_url else []
        self.port = reserve(self)
        self.url = f"http://127.0.0.1:{self.port}"
        command = forks.TRAINHALL if database_url else forks.COORDINATOR
        self.coordinator = Program("coordinator", self._server_arguments(), folder, env, command)
        if database_url is None:
            data = folder / "coordinator"
            data.mkdir(exist_ok=True)
            shutil.copyfile(migrated_file(), data / "trainhall.db")
        # Tasks of the tests' own are found there.
        agent_env = env | {"PYTHONPATH": with_tests()["PYTHONPATH"]}
        if forks_scripts:
            agent_env[forks.FORKED_SCRIPTS] = "1"
        self.agent = Program("agent", [], folder, agent_env)
        self.slots = slots
        self.http = httpx.Client(timeout=PATIENCE)

    def _server_arguments(self) -> list[str]:
        data = str(self.folder / "coordinator")
        return ["server", "--port", str(self.port), "--data-dir", data, *self._database]

    def start(self) -> None:
        self.start_coordinator()
        node = self.post("/cluster/nodes", json={"name": "here"})
        token = node["join_token"]
        data = str(self.folder / "agent")
        self.agent.arguments = [
            "agent", "--coordinator", self.url, "--token", token,
            "--data-dir", data, "--slots", str(self.slots),
        ]  # fmt: skip
        self.agent.start()
        eventually("the node to be ready", self.node_is_ready)

    def start_coordinator(self) -> None:
        self.coordinator.start()
        eventually("the coordinator to be ready", self.is_ready)
        if token := admin_token(self.folder / "coordinator"):
            self.http.headers["Authorization"] = f"Bearer {token}"

    def start_what_ended(self) -> None:
        """Give the next test a whole cluster, whatever the last one left."""
        if self.coordinator.ended():
            self.start_coordinator()
        if self.agent.ended():
            self.agent.start()
        eventually("the node to be ready", self.node_is_ready)

    def is_ready(self) -> bool:
        assert self.coordinator.process is not None
        assert self.coordinator.process.poll() is None, self.coordinator.output()
        with contextlib.suppress(httpx.TransportError):
            return self.http.get(self.url + "/readyz").status_code == 200
        return False

    def node_is_ready(self) -> bool:
        assert self.agent.process is not None
        assert self.agent.process.poll() is None, self.agent.output()
        return any(node["state"] == "ready" for node in self.get("/cluster/nodes")["items"])

    def request(self, method: str, path: str, **options: Any) -> Any:
        reply = self.http.request(method, f"{self.url}/api/v1{path}", **options)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply.json() if reply.content else None

    def get(self, path: str, **options: Any) -> Any:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> Any:
        return self.request("POST", path, **options)

    def put(self, path: str) -> Any:
        return self.request("PUT", path)

    def submit(self, spec: dict[str, Any]) -> str:
        return str(self.post("/training/jobs", json=spec)["id"])

    def job(self, job_id: str) -> Any:
        return self.get(f"/training/jobs/{job_id}")

    def wait_for(self, job_id: str, *states: str, timeout: float = PATIENCE) -> Any:
        def check() -> Any:
            job = self.job(job_id)
            if job["state"] in states:
                return job
            assert job["state"] not in FINAL, (
                f"{job['state']}: {job['reason']}\n{self.story(job_id)}"
            )
            return None

        try:
            return eventually(f"{job_id} to be {' or '.join(states)}", check, timeout=timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story(job_id)}") from None

    def wait_for_step(self, job_id: str, step: int, timeout: float = PATIENCE) -> int:
        def check() -> int | None:
            job = self.job(job_id)
            assert job["state"] not in FINAL, (
                f"{job['state']}: {job['reason']}\n{self.story(job_id)}"
            )
            return job["step"] if job["step"] >= step else None

        return int(eventually(f"{job_id} to reach step {step}", check, timeout=timeout) or 0)

    def cancel_everything(self) -> None:
        """Free the devices for whoever comes next."""
        for job in self.get("/training/jobs", params={"limit": 100})["items"]:
            if job["state"] not in FINAL:
                self.http.request("DELETE", f"{self.url}/api/v1/training/jobs/{job['id']}")
                self.wait_for(job["id"], *FINAL)

    def story(self, job_id: str) -> str:
        """What a person would read to understand: events, stderr, both programs' output."""
        events = self.get(f"/training/jobs/{job_id}/events", params={"limit": 200})["items"]
        lines = [f"{e['time']} {e['kind']} {e['reason']}" for e in events]
        logs = self.get(f"/training/jobs/{job_id}/logs", params={"tail": 40})["items"]
        lines += [f"rank {line['rank']} {line['stream']}: {line['text']}" for line in logs]
        lines += ["--- coordinator", self.coordinator.output()[-4000:]]
        lines += ["--- agent", self.agent.output()[-4000:]]
        return "\n".join(lines)

    def points(self, job_id: str, name: str, rank: int | None = None) -> list[tuple[int, float]]:
        reply = self.get(f"/metrics/jobs/{job_id}", params={"names": name, "max_points": 1_000_000})
        for series in reply["series"]:
            if series["name"] == name and series["rank"] == rank:
                return [(p["step"], p["value"]) for p in series["points"]]
        return []

    def log_text(self, job_id: str, rank: int, stream: str = "stdout") -> str:
        """A rank's whole output, in the order of its bytes."""
        text: list[tuple[int, int, str]] = []
        cursor: str | None = None
        while True:
            params: dict[str, Any] = {"rank": rank, "stream": stream, "limit": 1000}
            if cursor:
                params["after"] = cursor
            page = self.get(f"/training/jobs/{job_id}/logs", params=params)
            text += [(x["attempt"], x["offset"], x["text"]) for x in page["items"]]
            if not page["items"] or page["next_cursor"] in (None, cursor):
                break
            cursor = page["next_cursor"]
        return "\n".join(line for _, _, line in sorted(text))

    def rank_processes(self, job_id: str) -> list[psutil.Process]:
        """The live rank processes of a job, found by the environment that their shim gave them."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environ = process.environ()
                if environ.get("TRAINHALL_JOB_ID") == job_id and "RANK" in environ:
                    found.append(process)
        return sorted(found, key=lambda p: p.pid)

    def warm_parents(self) -> list[psutil.Process]:
        """Those of its agent."""
        return [p for p in self.processes() if p.ppid() == forks.warm_parents().pid]

    def processes(self) -> list[psutil.Process]:
        """Every live process that this cluster started, at any depth, however detached."""
        mine = str(self.folder)
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                    continue
                environ = process.environ()
                if environ.get("TRAINHALL_RUNTIME_DIR", "").startswith(mine):
                    found.append(process)
        return found

    def stop(self) -> None:
        """End everything; what the programs leave behind is the test's to complain about."""
        for program in (self.agent, self.coordinator):
            if program.process is not None and program.process.poll() is None:
                program.stop()
        self.http.close()

    def sweep(self) -> None:
        """Kill what is left, by pid: a failed test must not disturb the next one."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()


@contextlib.contextmanager
def running_cluster(
    folder: Path, database_url: str | None = None, slots: int = 2, *, forks_scripts: bool = False
) -> Iterator[Cluster]:
    cluster = Cluster(folder, database_url, slots, forks_scripts=forks_scripts)
    try:
        cluster.start()
        yield cluster
        cluster.stop()
    finally:
        cluster.sweep()
        cluster.http.close()
