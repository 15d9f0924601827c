"""Every example of a script runs: sent along with a job, and outside Trainhall as it is."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster.cluster import Cluster, running_cluster
from support.forking import forks
from support.holds import with_tests

from trainhall.cluster.wire.code_archive import inspect

pytestmark = pytest.mark.acceptance

EXAMPLES = Path(__file__).parents[2] / "examples" / "scripts"
NAMES = ["plain", "with_sdk", "hugging_face", "with_trainer", "fabric"]
EXAMPLE = pytest.mark.parametrize(
    "name", [*NAMES[:-1], pytest.param("fabric", marks=pytest.mark.integration)]
)
TORCHRUN = ["--standalone", "--nproc-per-node", "1"]
"""One rank, since each imports torch; two of the same script run under Trainhall. `--standalone`
takes a free port; torchrun's default is the same for all that run at once."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    # An import of torch is nearly all that an example costs; outside, `plain` is executed.
    with running_cluster(folder, forks_scripts=True) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.cancel_everything()


def submit(cluster: Cluster, *arguments: str, code: int = 0) -> str:
    done = forks.run(
        forks.TRAINHALL, ["submit", *arguments, "--url", cluster.url, "-o", "json"], timeout=120
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else str(json.loads(done.stdout)["id"])


def test_every_example_is_tried() -> None:
    for suffix in ("py", "yaml"):
        assert sorted(p.stem for p in EXAMPLES.glob(f"*.{suffix}")) == sorted(
            [*NAMES, "with_media"]
        )


def test_media_of_a_script_are_downloaded(cluster: Cluster, tmp_path: Path) -> None:
    job = submit(cluster, str(EXAMPLES / "with_media.yaml"))
    cluster.wait_for(job, "completed", timeout=150)
    done = forks.run(
        forks.TRAINHALL, ["outputs", "get", job, "--to", str(tmp_path), "--url", cluster.url]
    )
    assert done.returncode == 0, done.stderr
    found = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    media = ("image/{}.png", "difference/{}.json", "error by row/{}.json")
    assert found == {
        "summary.json", "outputs/summary.json",
        *(f"outputs/media/{each.format(step)}" for each in media for step in (50, 100, 150, 200)),
    }  # fmt: skip
    image = (tmp_path / "outputs/media/image/200.png").read_bytes()
    assert image.startswith(b"\x89PNG")


# `with_sdk` runs, and is paused on the way, below.
@pytest.mark.parametrize(
    ("name", "workers"),
    [
        ("plain", 2),
        ("hugging_face", 1),
        ("with_trainer", 2),
        pytest.param("fabric", 2, marks=pytest.mark.integration),
    ],
)
def test_an_example_runs_under_trainhall(cluster: Cluster, name: str, workers: int) -> None:
    job = submit(
        cluster, str(EXAMPLES / f"{name}.yaml"),
        "--set", "script.args=[--steps, '120']", "--set", f"resources.workers={workers}",
        # Threads of one rank that wait for each other crawl on a busy host.
        "--set", "script.env={OMP_NUM_THREADS: '1'}",
    )  # fmt: skip
    done = cluster.wait_for(job, "completed", timeout=150)
    assert len(done["spec"]["code"]) == 64
    if name == "plain":
        assert "step 100: loss" in cluster.log_text(job, 0)
        return
    assert done["step"] == done["total_steps"] == 120
    assert [step for step, _ in cluster.points(job, "loss")] == list(range(1, 121))
    if workers == 2:
        assert [step for step, _ in cluster.points(job, "loss", rank=1)] == list(range(1, 121))
    if name != "fabric":
        (checkpoint,) = cluster.get(f"/checkpoints/jobs/{job}")["items"]
        assert (checkpoint["step"], checkpoint["state"]) == (100, "committed")
        assert checkpoint["metrics"].keys() == done["metrics"].keys()


@EXAMPLE
def test_an_example_runs_outside(name: str, tmp_path: Path) -> None:
    """The rank of torchrun is executed; it and the others have torch imported already."""
    script = [str(EXAMPLES / f"{name}.py"), "--steps", "60"]
    target, arguments = (forks.TORCHRUN, TORCHRUN) if name == "plain" else (forks.SCRIPT, [])
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = forks.run(target, [*arguments, *script], env=env, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr
    output = done.stdout if name == "plain" else done.stderr
    assert ("step 50: loss" if name == "plain" else "step 60  loss") in output
    assert list(tmp_path.iterdir()) == []


HELD = """
import itertools, os, time
sleep, steps = time.sleep, itertools.count()
def held(seconds):
    if seconds != 0.02:
        return sleep(seconds)
    until = time.monotonic() + seconds * 1.05 ** next(steps)
    while time.monotonic() < until and not os.path.exists({gate!r}):
        sleep(0.01)
time.sleep = held
"""
"""Python runs it before the example, whose idle times become longer and longer until there is a
file, and none at all then: it cannot end before that."""


def test_script_pauses_and_resumes_from_its_step(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "sitecustomize.py").write_text(HELD.format(gate=str(gate)))
    path = os.pathsep.join([str(tmp_path), with_tests()["PYTHONPATH"]])
    job = submit(
        cluster, str(EXAMPLES / "with_sdk.yaml"),
        "--set", "script.args=[--steps, '300', --pace, '0.02']",
        "--set", f"script.env={{PYTHONPATH: '{path}'}}",
    )  # fmt: skip
    assert len(cluster.job(job)["spec"]["code"]) == 64
    cluster.wait_for_step(job, 5)
    cluster.put(f"/training/jobs/{job}/pause")
    paused = cluster.wait_for(job, "paused")
    assert not cluster.rank_processes(job)
    saved = cluster.get(f"/checkpoints/jobs/{job}")["items"][0]["step"]
    assert 5 <= saved == paused["step"] < 300
    assert {point[0] for point in cluster.points(job, "loss")} == set(range(1, saved + 1))
    gate.touch()
    cluster.put(f"/training/jobs/{job}/resume")
    done = cluster.wait_for(job, "completed")
    assert (done["attempt"], done["step"]) == (2, 300)
    for rank in (None, 1):
        assert [step for step, _ in cluster.points(job, "loss", rank)] == list(range(1, 301))
    newest, *_ = cluster.get(f"/checkpoints/jobs/{job}")["items"]
    assert (newest["step"], newest["state"]) == (300, "committed")
    assert newest["metrics"].keys() == done["metrics"].keys()
    reasons = [e["reason"] for e in cluster.get(f"/training/jobs/{job}/events")["items"]]
    assert f"resumed from step {saved}" in reasons


def test_a_task_of_ones_own_is_sent_along(cluster: Cluster) -> None:
    spec = str(EXAMPLES.parent / "own_task.yaml")
    job = submit(cluster, spec, "--set", "training.steps=40")
    assert cluster.wait_for(job, "completed")["step"] == 40


def test_code_is_uploaded_once_and_copied_per_attempt(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").write_text(
        "import os, pkg\n"
        "with open('mine', 'x') as file:\n"
        "    file.write('x')\n"
        "print(sorted(os.listdir('.')))\n"
    )
    (tmp_path / "job.yaml").write_text("name: own\ncode: .\nscript: {module: pkg.train}\n")
    before = set((cluster.folder / "coordinator" / "code").glob("*"))
    jobs = [submit(cluster, str(tmp_path / "job.yaml")) for _ in range(2)]
    for job in jobs:
        cluster.wait_for(job, "completed")
        assert cluster.log_text(job, 0) == "['job.yaml', 'mine', 'outputs', 'pkg']"
    (new,) = set((cluster.folder / "coordinator" / "code").glob("*")) - before
    assert inspect(new).files == 2


def test_unsendable_folder_is_refused_before_upload(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/")
    (tmp_path / "job.yaml").write_text("name: own\ncode: .\nscript: {path: train.py}\n")
    message = submit(cluster, str(tmp_path / "job.yaml"), code=2)
    assert "out is a link that may lead out of the folder" in message


@pytest.mark.skipif(shutil.which("curl") is None, reason="NO CURL HERE: its lines are not run")
def test_the_lines_for_curl_work_as_they_stand(cluster: Cluster, tmp_path: Path) -> None:
    page = (EXAMPLES.parents[1] / "docs" / "scripts.md").read_text()
    (block,) = (b for b in re.findall(r"```sh\n(.*?)```", page, re.S) if "curl" in b)
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "train.py").write_text("print('sent by curl')\n")
    text = block.replace("http://127.0.0.1:8000", cluster.url).replace("curl -", "curl -sSf -")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-ec", text], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PATH": path, "TRAINHALL_URL": cluster.url},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    sent, job = done.stdout.replace("}{", "}\n{").splitlines()
    assert json.loads(sent)["sha256"] == json.loads(job)["spec"]["code"]
    cluster.wait_for(json.loads(job)["id"], "completed")
    assert cluster.log_text(json.loads(job)["id"], 0) == "sent by curl"
