"""Pause, resume and cancel of real jobs, and what a hostile script may do."""

import time
from pathlib import Path

import psutil
import pytest
from support.cluster.cluster import Cluster
from support.holds import STEPS, Gate, free_task
from support.waiting import eventually

pytestmark = pytest.mark.acceptance


def digits_job(**training: object) -> dict[str, object]:
    return {
        "name": "digits",
        "task": {"name": "digits", "params": {"dropout": 0.1}},
        "resources": {"workers": 2},
        "training": {"steps": STEPS, "seed": 7, **training},
        "checkpoint": {"every_steps": 150},
    }


# What is shown is what processes do, which is the same on each database: each has one long job.
ON_SQLITE, ON_POSTGRES = (
    pytest.mark.parametrize("module_cluster", [name], indirect=True)
    for name in ("sqlite", "postgres")
)


@ON_SQLITE
def test_submitted_job_learns_to_read_digits(shared_cluster: Cluster) -> None:
    cluster = shared_cluster
    job = cluster.submit({**digits_job(steps=600), "task": {"name": "digits"}})
    done = cluster.wait_for(job, "completed")
    assert done["step"] == done["total_steps"] == 600
    assert done["metrics"]["eval_accuracy"] >= 0.95
    checkpoints = cluster.get(f"/checkpoints/jobs/{job}")["items"]
    assert max(c["step"] for c in checkpoints) == 600


@ON_POSTGRES
def test_pause_and_resume_keep_the_curve_bit_exact(shared_cluster: Cluster, gate: Gate) -> None:
    cluster = shared_cluster
    untouched = cluster.submit({**digits_job(), "task": free_task("digits", dropout=0.1)})
    cluster.wait_for(untouched, "completed")
    paused = cluster.submit({**digits_job(), "task": gate.task("digits", dropout=0.1)})
    cluster.wait_for_step(paused, 1)
    cluster.put(f"/training/jobs/{paused}/pause")
    stopped = cluster.wait_for(paused, "paused")
    assert not cluster.rank_processes(paused)
    assert stopped["step"] < STEPS, "paused too late to prove anything"
    gate.open()
    cluster.put(f"/training/jobs/{paused}/resume")
    done = cluster.wait_for(paused, "completed")
    assert done["attempt"] == 2
    for name in ("loss", "gradient_norm", "eval_loss"):
        assert cluster.points(paused, name) == cluster.points(untouched, name)


@ON_SQLITE
@pytest.mark.parametrize("task", ["stepping", "sleeping"])
def test_cancel_ends_a_task_within_two_seconds(shared_cluster: Cluster, task: str) -> None:
    cluster = shared_cluster
    seconds = {"stepping": 0.01, "sleeping": 600}[task]
    job = cluster.submit(
        {
            "name": "cancelled",
            "task": {"name": "synthetic", "params": {"step_seconds": seconds}},
            "resources": {"workers": 2},
            "training": {"steps": 100000},
        }
    )
    ranks = eventually(
        "two ranks", lambda: (found := cluster.rank_processes(job)) and len(found) == 2 and found
    )
    if task == "stepping":
        cluster.wait_for_step(job, 5)
    asked = time.monotonic()
    cluster.request("DELETE", f"/training/jobs/{job}")
    psutil.wait_procs(ranks, timeout=10)
    took = time.monotonic() - asked
    assert not any(p.is_running() for p in ranks)
    cluster.wait_for(job, "cancelled")
    # The bound is the product's promise, with room for a loaded machine.
    assert took < 6, f"cancel took {took:.1f} s"


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""


@ON_SQLITE
def test_cancel_ends_the_tree_of_stubborn_script(shared_cluster: Cluster, tmp_path: Path) -> None:
    cluster = shared_cluster
    script, note = tmp_path / "stubborn.py", tmp_path / "grandchild"
    script.write_text(STUBBORN)
    job = cluster.submit(
        {
            "name": "stubborn",
            "script": {"path": str(script), "args": [str(note)]},
            "recovery": {"grace_seconds": 0.5},
        }
    )
    grandchild = eventually("the grandchild", lambda: note.exists() and note.read_text())
    cluster.request("DELETE", f"/training/jobs/{job}")
    cluster.wait_for(job, "cancelled")
    eventually("the grandchild to end", lambda: not psutil.pid_exists(int(grandchild)))


GRACEFUL = """
import signal, sys, time
def leave(*_):
    print("tidied up", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(600)
"""


@ON_SQLITE
def test_script_gets_its_grace(shared_cluster: Cluster, tmp_path: Path) -> None:
    cluster = shared_cluster
    script = tmp_path / "graceful.py"
    script.write_text(GRACEFUL)
    job = cluster.submit({"name": "graceful", "script": {"path": str(script)}})
    eventually("the script", lambda: "ready" in cluster.log_text(job, 0))
    cluster.request("DELETE", f"/training/jobs/{job}")
    cluster.wait_for(job, "cancelled")
    eventually("its last words", lambda: "tidied up" in cluster.log_text(job, 0))


HOSTILE = """
import os, sys
out = sys.stdout.buffer
out.write(b"\\xff\\xfe not utf-8 \\xc3\\x28\\n")
out.write(b"\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07\\n")
out.write(b"<script>alert(1)</script>\\n")
out.write(b"x" * 10_000_000 + b"\\n")
out.write(bytes(range(256)) * 4 + b"\\n")
out.write(b"the end\\n")
"""


def test_hostile_output_harms_nothing(shared_cluster: Cluster, tmp_path: Path) -> None:
    cluster = shared_cluster
    script = tmp_path / "hostile.py"
    script.write_text(HOSTILE)
    job = cluster.submit({"name": "hostile", "script": {"path": str(script)}})
    cluster.wait_for(job, "completed")
    text = eventually(
        "the output", lambda: (t := cluster.log_text(job, 0)).rstrip().endswith("the end") and t
    )
    assert "<script>alert(1)</script>" in text
    assert text.count("x") >= 10_000_000


def test_failing_script_reports_its_error(shared_cluster: Cluster, tmp_path: Path) -> None:
    cluster = shared_cluster
    script = tmp_path / "fails.py"
    script.write_text("import sys\nsys.stderr.write('no such data set\\n')\nsys.exit(3)\n")
    job = cluster.submit(
        {"name": "fails", "script": {"path": str(script)}, "recovery": {"max_restarts": 0}}
    )
    done = eventually("the failure", lambda: (j := cluster.job(job))["state"] == "failed" and j)
    assert "exit code 3" in done["reason"] or "exited with 3" in done["reason"]
    attempt = cluster.get(f"/training/jobs/{job}/attempts")["items"][0]
    assert attempt["failure"]["exit_code"] == 3
    assert "no such data set" in attempt["failure"]["log_tail"]


def test_waiting_job_shows_reason_and_runs_later(shared_cluster: Cluster) -> None:
    cluster = shared_cluster
    sleeping = {"name": "synthetic", "params": {"step_seconds": 600}}
    first = cluster.submit({**digits_job(), "name": "holder", "task": sleeping})
    cluster.wait_for(first, "running")
    second = cluster.submit({**digits_job(steps=20), "name": "waiter"})
    waiting = eventually("the reason", lambda: (j := cluster.job(second))["reason"] and j)
    assert waiting["state"] == "queued"
    queue = cluster.get("/cluster/queue")["items"]
    assert [entry["job_id"] for entry in queue] == [second]
    assert "2" in queue[0]["reason"]
    impossible = cluster.submit(
        {**digits_job(steps=20, global_batch_size=64), "resources": {"workers": 64}}
    )
    eventually("its reason", lambda: "64" in cluster.job(impossible)["reason"])
    cluster.request("DELETE", f"/training/jobs/{first}")
    cluster.wait_for(first, "cancelled")
    cluster.wait_for(second, "completed")
