"""Cost of one `mlflow.log_metric` in a job, and of one that the coordinator stores, against a
server that answers an empty 200 at once.

    python -m benchmarks.jobs.tracking [--rounds 10] [--calls 100]      (`make integrations`)

The client is MLflow's own; rounds of the servers take turns. What a job's clients log waits for no
coordinator, and what is logged from elsewhere is in its database before the answer.
"""

import argparse
import contextlib
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import mlflow

from benchmarks.report import Figure, report
from trainhall.cluster.agent.shim.tracking import TOKEN, URI, open_tracking
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import CheckpointPlan, Launch, RankSlot
from trainhall.training.spec.parse import validate_spec

GOAL_RATIO = 1.3
_URL = re.compile(r"http://[\d.]+:\d+")
_EMPTY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--calls", type=int, default=100, help="of log_metric in a round")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        job(Path(folder, "job")) as ours,
        coordinator(Path(folder, "data")) as (central, run_id),
        empty() as peer,
    ):
        sides = {"job": ours, "coordinator": central, "empty": peer}
        times: dict[str, list[float]] = {name: [] for name in sides}
        for round_ in range(options.rounds + 1):
            for name, variables in sides.items():
                os.environ |= variables
                mlflow.set_tracking_uri(variables[URI])
                run = run_id if name == "coordinator" else "job"
                start = time.perf_counter()
                for call in range(options.calls):
                    step = round_ * options.calls + call
                    mlflow.log_metric("train/loss", 1.0, step=step, run_id=run)
                if round_:  # the first one connects
                    times[name].append((time.perf_counter() - start) / options.calls)
    took = {name: statistics.median(each) for name, each in times.items()}
    report(
        Figure("log_metric in a job", 1000 * took["job"], "ms"),
        Figure("log_metric to the coordinator", 1000 * took["coordinator"], "ms"),
        Figure("log_metric, empty answer", 1000 * took["empty"], "ms"),
        Figure("ratio", took["job"] / took["empty"], at_most=GOAL_RATIO),
        Figure("ratio of the coordinator", took["coordinator"] / took["empty"]),
    )


@contextlib.contextmanager
def job(path: Path) -> Iterator[dict[str, str]]:
    """Serve an attempt; yields a rank's variables."""
    launch = Launch(
        job_id="job",
        attempt=1,
        generation=1,
        spec=validate_spec({"name": "job", "script": {"path": "/train.py"}}),
        world_size=1,
        node_rank=0,
        num_nodes=1,
        ranks=[RankSlot(rank=0, local_rank=0, device_kind="cpu", device_index=0)],
        checkpoint=CheckpointPlan(folder="", upload=True),
    )
    path.mkdir()
    folder = AttemptFolder(path)
    replace_json(folder.launch, launch)
    tracking = open_tracking(folder, launch)
    assert tracking is not None
    pid = tracking.serve()
    assert pid is not None
    try:
        yield tracking.variables(0, {})
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        tracking.close()


@contextlib.contextmanager
def coordinator(data_dir: Path) -> Iterator[tuple[dict[str, str], str]]:
    """Serve a coordinator; yields the client's variables, and the id of a run."""
    arguments = ["server", "--port", "0", "--data-dir", str(data_dir)]
    server = subprocess.Popen(
        [sys.executable, "-m", "trainhall.cli.main", *arguments],
        env={**os.environ, "TRAINHALL_AUTH": "none"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        url = next(found[0] for line in server.stdout if (found := _URL.search(line)))
        threading.Thread(target=server.stdout.read, daemon=True).start()
        client = mlflow.MlflowClient(url)
        yield {URI: url, TOKEN: "none"}, client.create_run("0").info.run_id
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def empty() -> Iterator[dict[str, str]]:
    """Serve nothing, as fast as possible."""
    listener = socket.create_server(("127.0.0.1", 0))
    pid = os.fork()
    if pid == 0:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer, args=[connection], daemon=True).start()
    try:
        yield {URI: f"http://127.0.0.1:{listener.getsockname()[1]}", TOKEN: "none"}
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        listener.close()


def _answer(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = b""
    while part := connection.recv(65536):
        received += part
        head, end, body = received.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if end and len(body) >= (int(length[1]) if length else 0):
            connection.sendall(_EMPTY)
            received = b""


if __name__ == "__main__":
    main()
