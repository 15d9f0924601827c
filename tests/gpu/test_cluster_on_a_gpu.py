"""A coordinator, an agent and their jobs on a host with a GPU: NVML, CUDA and NCCL at work."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from support.cluster.up import Start, Up, starter
from support.waiting import PATIENCE, eventually

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.cuda.device_count() == 0, reason="NOT TESTED: torch sees no CUDA device here"
    ),
]
LANGUAGE_MODEL = """
name: paragraphs
task: {name: language_model, params: {size: tiny}}
training: {steps: 1000000, global_batch_size: 64, precision: bf16}
"""
TOO_LARGE = """
name: too large
task: {name: language_model, params: {layers: 12, heads: 12, width: 768, context: 1024}}
training: {steps: 10, global_batch_size: 4096}
recovery: {max_restarts: 0}
"""
SCRIPT = """
import torch
import torch.distributed as dist

dist.init_process_group()
assert "cuda:nccl" in dist.get_backend_config(), dist.get_backend_config()
ones = torch.ones(1000, device="cuda")
dist.all_reduce(ones)
print("sum", ones.sum().item(), "on", torch.cuda.get_device_name())
dist.destroy_process_group()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starter(tmp_path) as anyhow:
        yield anyhow


def test_job_on_a_gpu_pauses_resumes_and_recovers(start: Start) -> None:
    up = start(forked=False)
    job = up.running_job(LANGUAGE_MODEL)
    url = up.url() + "/api/v1"
    base = f"{url}/training/jobs/{job}"

    def gpu() -> Any:
        (node,) = httpx.get(f"{url}/cluster/nodes").json()["items"]
        return node["devices"][0]

    assert (gpu()["kind"], gpu()["name"]) == ("cuda", torch.cuda.get_device_name(0))
    assert gpu()["job_id"] == job
    eventually("its use", lambda: gpu()["utilization"] and gpu()["power"])
    assert 2**28 < gpu()["memory_used"] < gpu()["memory_total"]
    assert gpu()["temperature"] > 0

    assert httpx.put(f"{base}/pause").is_success
    paused = reaches(base, "paused")
    assert httpx.put(f"{base}/resume").is_success
    passes(base, paused["step"])

    rank(up).send_signal(signal.SIGKILL)
    eventually("another attempt", lambda: httpx.get(base).json()["attempt"] == 3)
    passes(base, paused["step"])
    assert httpx.delete(base).is_success
    reaches(base, "cancelled")
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(PATIENCE) == 0, up.printed
    assert up.left() == []


def test_a_job_too_large_for_the_gpu_says_so(start: Start) -> None:
    up = start(forked=False)
    base = submitted(up, TOO_LARGE)
    job = reaches(base, "failed")
    (attempt,) = httpx.get(f"{base}/attempts").json()["items"]
    assert attempt["failure"]["cause"] == "out_of_memory", attempt
    assert "training.gradient_accumulation: 2 " in job["reason"], job["reason"]


def test_a_script_uses_nccl(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "sums.py"
    path.write_text(SCRIPT)
    up = start(forked=False)
    base = submitted(up, f"name: sums\nscript: {{path: {path}}}\n")
    reaches(base, "completed")
    name = torch.cuda.get_device_name(0)
    assert f"sum 1000.0 on {name}" in httpx.get(f"{base}/logs").text


def submitted(up: Up, spec: str) -> str:
    """The URL of a job."""
    url = up.ready() + "/api/v1/training/jobs"
    reply = httpx.post(url, content=spec, headers={"Content-Type": "application/yaml"})
    assert reply.status_code == 201, reply.text
    return f"{url}/{reply.json()['id']}"


def reaches(base: str, state: str) -> Any:
    """The job, once it is in that state."""

    def look() -> Any:
        job = httpx.get(base).json()
        final = ("completed", "failed", "cancelled")
        assert job["state"] == state or job["state"] not in final, job
        return job["state"] == state and job

    return eventually(f"the job to be {state}", look)


def passes(base: str, step: int) -> None:
    eventually(
        f"steps behind {step}", lambda: httpx.get(base).json()["step"] > step + 5, timeout=PATIENCE
    )


def rank(up: Up) -> Any:
    """The process of the job's only rank."""
    return next(process for process in up.left() if process.environ().get("RANK") == "0")


def test_bench_measures_utilization_and_energy(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(LANGUAGE_MODEL.replace("1000000", "300"))
    command = [sys.executable, "-m", "trainhall.cli.main", "bench", str(file), "--repeats", "1"]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert 0 < row["model_flops_utilization"] < 100
    assert 10 < row["energy_per_sample"] * row["samples_per_second"] < 2000  # watts
