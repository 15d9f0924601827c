"""`trainhall up`: a whole Trainhall, of which nothing is left when it ends, however it ends."""

import json
import re
import signal
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.cluster.up import Start, starter
from support.nodes.certificates import Authority
from support.waiting import PATIENCE, eventually

from trainhall.api.host.credentials import admin_token
from trainhall.cli.base.client import Client
from trainhall.cluster.tls import Anchor, own_anchor

pytestmark = pytest.mark.acceptance

QUICK = """
name: quick
task: {name: digits}
resources: {workers: 2, device: cpu}
training: {steps: 20}
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts it with two slots."""
    with starter(tmp_path) as anyhow:
        yield partial(anyhow, "--slots", "2")


# That the other two do as much is shown on the way below: where the next one goes on, and where
# what died is started again.
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGHUP,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_everything(start: Start, number: signal.Signals) -> None:
    up = start(forked=False)
    up.running_job()
    assert len(up.left()) >= 5  # coordinator, agent, warm parent, shim, two ranks
    up.process.send_signal(number)
    assert up.process.wait(PATIENCE) == 0, up.printed
    assert up.left() == [], up.printed
    assert "killed" not in up.printed


def test_a_signal_while_it_starts_ends_everything(start: Start) -> None:
    up = start(forked=False)
    eventually("its children", lambda: up.left())
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(PATIENCE) == 0, up.printed
    assert up.left() == []


@pytest.mark.parametrize(
    "message", ["to the coordinator", pytest.param("to the next one", marks=pytest.mark.slow)]
)
def test_up_resumes_and_dies_as_one(start: Start, message: str) -> None:
    up = start()
    job = up.running_job()
    if message == "to the next one":
        # Nobody starts it again, and the agent finds nobody to tell.
        up.process.send_signal(signal.SIGSTOP)
        up.child("coordinator").kill()
    up.process.send_signal(signal.SIGINT)
    up.process.send_signal(signal.SIGCONT)
    assert up.process.wait(PATIENCE) == 0, up.printed
    assert up.left() == [], up.printed
    assert "killed" not in up.printed
    again = start()
    again.ready()
    # The node may still count as ready from before, sooner than this is said.
    said = f"Resuming 1 unfinished job: paced ({job})\n"
    eventually("what it goes on with", lambda: said in again.printed)
    path = f"/training/jobs/{job}"
    assert len(again.get("/cluster/nodes")["items"]) == 1

    def progresses() -> re.Match[str] | None:
        found = again.get(path)
        # Of restarts it has none to spare.
        assert found["state"] not in ("failed", "completed"), found["reason"]
        return re.search(r"^resumed from step (\d+)$", "\n".join(lines_of(2)), re.MULTILINE)

    def lines_of(attempt: int) -> list[str]:
        events = again.get(f"{path}/events", limit=500)["items"]
        return [e["reason"] for e in events if e["attempt"] == attempt]

    step = int(eventually("the job to go on", progresses).group(1))
    first = lines_of(1)
    assert f"stopped at step {step} and saved" in first
    assert f"the agent on {socket.gethostname()} was stopped; the ranks saved first" in first[-1]
    eventually("steps", lambda: again.get(path)["step"] > step + 5)
    (series,) = again.get(f"/metrics/jobs/{job}", names="loss", max_points=1_000_000)["series"]
    steps = [point["step"] for point in series["points"]]
    assert steps == list(range(1, len(steps) + 1)), "nothing was lost"
    again.process.kill()
    again.process.wait()
    eventually("everything to end", lambda: not again.left())


def test_up_restarts_dead_processes(start: Start) -> None:
    up = start()
    job = up.running_job()
    old = up.child("coordinator")
    old.kill()
    path = f"/training/jobs/{job}"
    # The socket outlives the coordinator: the request waits for the new one.
    before = up.get(path)["step"]
    assert up.child("coordinator").pid != old.pid
    eventually("more steps", lambda: up.get(path)["step"] > before + 5)
    up.child("agent").kill()
    before = up.get(path)["step"]
    eventually("more steps", lambda: up.get(path)["step"] > before + 20)
    # It has found its ranks.
    assert up.get(path)["attempt"] == 1
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(PATIENCE) == 0, up.printed
    assert up.left() == [], up.printed
    assert "killed" not in up.printed


def test_a_taken_port_is_one_line(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        up = start("--port", str(taken.getsockname()[1]))
        assert up.process.wait(PATIENCE) == 1
    assert re.fullmatch(
        r"trainhall: cannot listen on 127\.0\.0\.1 port \d+: Address already in use; "
        r"choose another --port \(0 picks a free one\)\n",
        up.printed,
    )


def test_the_demo_ends_with_the_job(start: Start, tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").write_text(QUICK)
    up = start("--demo", str(tmp_path / "quick.yaml"), "--once")
    assert up.process.wait(PATIENCE) == 0, up.printed
    assert re.search(r"Watch it at http://\S+/jobs/\w+", up.printed)
    assert re.search(r"step 20/20  loss \d", up.printed)
    assert re.search(r"quick completed: 20 steps in \d+ m?s, eval_accuracy 0\.\d+", up.printed)
    assert up.left() == []


def test_up_keeps_running_after_demo(start: Start, tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").write_text(QUICK)
    up = start("--demo", str(tmp_path / "quick.yaml"))
    progresses = f"Trainhall is still at {up.url()}; Ctrl-C stops it.\n"
    eventually("it to say so", lambda: up.printed.endswith(progresses))
    assert up.printed.startswith("Starting the coordinator …\n")
    # It is at another port than where they look.
    assert f"To use it from other commands: `export TRAINHALL_URL={up.url()}`\n" in up.printed
    # One data folder serves one.
    second = start()
    assert second.process.wait(PATIENCE) == 2
    assert "another `trainhall up` uses" in second.printed
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(PATIENCE) == 0


def test_a_demo_that_fails_is_a_failure(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit(3)\n")
    spec = {
        "name": "fails",
        "script": {"path": str(script)},
        "recovery": {"max_restarts": 0},
        "resources": {"device": "cpu"},
    }
    (tmp_path / "fails.json").write_text(json.dumps(spec))
    up = start("--demo", str(tmp_path / "fails.json"), "--once")
    assert up.process.wait(PATIENCE) == 1, up.printed
    assert "fails failed: " in up.printed
    assert up.left() == []


def test_a_demo_that_is_no_spec_starts_nothing(start: Start, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("name: x\n")
    up = start("--demo", str(tmp_path / "bad.yaml"))
    assert up.process.wait(PATIENCE) == 2
    assert "not a valid job spec" in up.printed
    assert not (tmp_path / "data").exists()


def test_up_over_tls(start: Start, tmp_path: Path) -> None:
    """With a certificate of its own, and then with one that does not name loopback."""
    up = start("--tls-self-signed")
    url = up.url()
    assert url.startswith("https://127.0.0.1:")
    trusted = tmp_path / "data" / "tls" / "ca.pem"
    context = ssl.create_default_context(cafile=str(trusted))
    with httpx.Client(base_url=f"{url}/api/v1", verify=context, headers=up.credential) as http:

        def nodes() -> list[Any]:
            return list(http.get("/cluster/nodes").json()["items"])

        eventually("the node", lambda: [n["state"] for n in nodes()] == ["ready"])
        (node,) = nodes()
        yaml = {"Content-Type": "application/yaml"}
        job = http.post("/training/jobs", content=QUICK, headers=yaml).json()["id"]
        eventually(
            "the job",
            lambda: http.get(f"/training/jobs/{job}").json()["state"] == "completed",
            timeout=PATIENCE,
        )
    assert f"TRAINHALL_TLS_CA=sha256:{Anchor(trusted.read_text()).fingerprint}" in up.printed
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(PATIENCE) == 0, up.printed

    lab = Authority(tmp_path / "lab")
    files = lab.issue("lab.example")
    up = start("--tls-cert", str(files.cert), "--tls-key", str(files.key))
    token = admin_token(tmp_path / "data")
    with Client(up.url(), token=token, anchor=own_anchor(files.cert)) as client:
        eventually(
            "the node again",
            lambda: (
                [(n["id"], n["state"]) for n in client.items("/cluster/nodes")]
                == [(node["id"], "ready")]
            ),
            timeout=PATIENCE,
        )
