"""The commands against a real cluster: what they print, where, and their exit codes."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cluster.cluster import TRAINHALL, Cluster, running_cluster
from support.cluster.web import FIRST_ADMIN
from support.forking import forks
from support.holds import STEPS, Gate
from support.waiting import eventually
from typer.main import get_command

from trainhall.cli.base.running import data_dir_of
from trainhall.cli.main import app

pytestmark = pytest.mark.acceptance

QUICK = {
    "name": "quick",
    "task": {"name": "digits"},
    "resources": {"workers": 2},
    "training": {"steps": 20},
    "checkpoint": {"every_steps": 10},
}
ENDLESS = {
    "name": "endless",
    "task": {"name": "synthetic", "params": {"step_seconds": 0.1}},
    "resources": {"workers": 2},
    "training": {"steps": 1000000},
}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """Runs `trainhall` against one cluster."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder

    def __call__(
        self, *arguments: str, code: int = 0, given: str | None = None, **env: str
    ) -> Done:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TRAINHALL_")}
        env = clean | {"TRAINHALL_URL": self.cluster.url} | env
        done = forks.run(forks.TRAINHALL, arguments, given=given, cwd=self.folder, env=env)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def file(self, spec: dict[str, Any], name: str = "job.yaml") -> str:
        path = self.folder / name
        path.write_text(yaml.safe_dump(spec))
        return str(path)

    def submit(self, spec: dict[str, Any]) -> str:
        return self("submit", self.file(spec), "-o", "name").out.strip()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def cli(cluster: Cluster, tmp_path: Path) -> Cli:
    return Cli(cluster, tmp_path)


@pytest.fixture(scope="module")
def finished(cluster: Cluster) -> str:
    """The id of a job that completed and has two checkpoints."""
    job = cluster.submit(QUICK)
    cluster.wait_for(job, "completed")
    return job


@pytest.fixture
def running(cli: Cli) -> Iterator[str]:
    """The id of a job that takes steps until the test ends."""
    job = cli.submit(ENDLESS)
    cli.cluster.wait_for_step(job, 2)
    yield job
    if cli.cluster.job(job)["state"] not in ("cancelled", "completed"):
        cli("cancel", job)
    cli.cluster.wait_for(job, "cancelled", "completed")


def test_submit_returns_at_once_and_prints_the_id(cli: Cli) -> None:
    done = cli("submit", cli.file(QUICK))
    assert re.fullmatch(r"[0-9a-f]{12}\n", done.out)
    job = done.out.strip()
    assert f"/jobs/{job}" in done.err
    cli("wait", job)
    done = cli("submit", "-", "--set", "training.steps=5", "-o", "json", given=json.dumps(QUICK))
    assert done.json["spec"]["training"]["steps"] == 5
    cli("wait", done.json["id"])


def test_submit_and_follow_shows_progress_on_stderr(cli: Cli) -> None:
    done = cli("submit", cli.file(QUICK), "--follow", NO_COLOR="1")
    assert re.fullmatch(r"[0-9a-f]{12}\n", done.out)
    assert "step 20/20  loss " in done.err
    assert re.search(r"quick completed at step 20, eval_accuracy 0\.\d+", done.err)
    assert "\x1b" not in done.err


def test_data_folder_of_running_coordinator_is_found(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "cluster")
    cluster.coordinator.command = TRAINHALL  # a fork has another command line
    try:
        cluster.start_coordinator()
        assert data_dir_of(cluster.url) == cluster.folder / "coordinator"
        assert data_dir_of(cluster.url.replace("127.0.0.1", "lab")) is None
        assert data_dir_of("http://127.0.0.1:9") is None
    finally:
        cluster.stop()


def test_a_dry_run_creates_nothing(cli: Cli) -> None:
    before = cli("ls", "-o", "name").out
    done = cli("submit", cli.file(QUICK), "--dry-run", "-o", "json")
    assert done.json["world_size"] == 2
    assert "nothing was submitted" in done.err
    assert re.search(r"It would (start now|be number \d+ in the queue)", done.err)
    assert done.json["outlook"]["when"] in ("now", "later")
    assert cli("ls", "-o", "name").out == before
    done = cli("submit", cli.file(QUICK), "--dry-run", "--set", "resources.workers=64")
    assert "On the cluster as it is now, it would never start: needs 64 CPU slots; the" in done.err


def test_dry_run_checks_code_without_upload(cli: Cli) -> None:
    lab = cli.folder / "lab"
    lab.mkdir()
    (lab / "train.py").write_text("print('trained')")
    spec = {"name": "lab", "code": "lab", "script": {"path": "train.py"}}
    for _ in range(2):
        done = cli("submit", cli.file(spec), "--dry-run")
        assert f"{lab} would be uploaded (1 file, " in done.err
    spec["script"] = {"path": "trian.py"}
    for how in (["--dry-run"], []):
        done = cli("submit", cli.file(spec), *how, code=2)
        assert f"script.path: trian.py is not in {lab}" in done.err
        assert "did you mean train.py?" in done.err
    elsewhere = {"name": "lab", "script": {"path": "/shared/lab/train.py"}}
    done = cli("submit", cli.file(elsewhere), "--dry-run")
    assert "script.path: /shared/lab/train.py is not on this host" in done.err
    rooted = {"name": "m", "task": {"name": "mnist", "params": {"root": "data"}}}
    done = cli("submit", cli.file(rooted), "--dry-run")
    assert f"task.params.root: {cli.folder / 'data'} is not on this host" in done.err


def test_script_is_submitted_without_a_spec(cli: Cli) -> None:
    (cli.folder / "train.py").write_text("import sys; print('got', *sys.argv[1:])")
    subprocess.run(["git", "init", "-q", str(cli.folder)], check=True)
    how = ("--workers", "2", "-f", "--", "--lr", "0.1")
    assert f"Code: {cli.folder} (the git repository)" in cli("submit", "train.py", *how).err
    job = cli("ls", "-n", "1", "-o", "name").out.strip()
    assert "got --lr 0.1" in cli("logs", job).out
    assert "submit train.py --workers 2 -f -- --lr 0.1" in cli("show", job).out
    done = cli("submit", "--dry-run", "--", "python", "-m", "train")
    assert yaml.safe_load(done.out)["script"]["module"] == "train"
    assert "unchanged since it was uploaded" in done.err


def test_wrong_spec_lists_fields_and_exits_2(cli: Cli) -> None:
    wrong = {**QUICK, "training": {"stepps": 3}, "priority": "much"}
    done = cli("submit", cli.file(wrong), code=2)
    assert "training.stepps: unknown key; did you mean 'steps'?" in done.err
    assert "priority: " in done.err
    assert done.out == ""
    cli("submit", "nowhere.yaml", code=2)
    cli("submit", code=2)


def test_ls_in_every_format(cli: Cli, finished: str) -> None:
    table = cli("ls").out.splitlines()
    assert table[0].split() == [
        "ID", "NAME", "STATE", "STEP", "METRIC", "WORKERS", "AGE", "REASON",
    ]  # fmt: skip
    line = next(line for line in table if line.startswith(finished))
    assert line.split()[1:4] == ["quick", "completed", "20/20"]
    assert finished in cli("ls", "-o", "name").out.split()
    assert finished in [j["id"] for j in cli("ls", "-o", "json").json]
    assert finished in [j["id"] for j in yaml.safe_load(cli("ls", "-o", "yaml").out)]
    states = {j["state"] for j in cli("ls", "--state", "completed", "-o", "json").json}
    assert states == {"completed"}
    assert len(cli("ls", "-n", "1", "-o", "name").out.split()) == 1
    assert cli("ls", "--state", "failed").err == "No jobs.\n"
    assert finished in cli("ls", "--search", finished[:6], "-o", "name").out.split()
    assert cli("ls", "--search", "no such job").err == "No jobs.\n"
    assert "exclude each other" in cli("ls", "--queue", "--search", "x", code=2).err


def test_queue_lists_reasons(cli: Cli) -> None:
    submitted = cli("submit", cli.file(QUICK), "--set", "resources.workers=64", "-o", "name")
    waiting = submitted.out
    assert (
        "\nOn the cluster as it is now, it will never start: needs 64 CPU slots; the"
        in submitted.err
    )
    try:
        header, line, *_ = cli("ls", "--queue").out.splitlines()
        assert header.split() == ["#", "ID", "NAME", "PRIORITY", "WAITS", "BEFORE", "FOR"]
        assert line.split()[1] == waiting.strip()
        assert "needs 64 CPU slots" in line
        assert waiting.strip() in cli("ls", "--queue", "-o", "name").out.split()
        (entry,) = cli("ls", "--queue", "-o", "json").json
        assert (entry["position"], entry["needs"]) == (1, {"device": "cpu", "count": 64})
        refused = cli("ls", "--queue", "--state", "running", code=2)
        assert "exclude each other" in refused.err
    finally:
        cli("cancel", waiting.strip())
    assert cli("ls", "--queue").err == "The queue is empty.\n"


def test_show_by_the_beginning_of_an_id(cli: Cli, finished: str) -> None:
    page = cli("show", finished[:8]).out
    assert re.search(r"^state +completed$", page, re.MULTILINE)
    assert "eval_accuracy" in page
    assert re.search(r"^ +\d.* +state +running: 2 ranks on here$", page, re.MULTILINE)
    assert re.search(r"^ +\d.* +state +completed$", page, re.MULTILINE)
    assert re.search(r"^reason +—$", page, re.MULTILINE)
    assert cli("show", finished, "-o", "json").json["id"] == finished


@pytest.mark.parametrize("command", ["show", "logs", "pause", "cancel", "resume"])
def test_missing_job_exits_1(cli: Cli, command: str) -> None:
    assert cli(command, "ffffffffffff", code=1).err == (
        "trainhall: there is no job 'ffffffffffff'\n"
    )


def test_wait_exit_code_reflects_the_end(cli: Cli, finished: str, running: str) -> None:
    cli("wait", finished)
    cli("wait", "ffffffffffff", code=102)
    assert "is still running" in cli("wait", running, "--timeout", "0.3", code=101).err
    cli("cancel", running)
    assert "endless cancelled at step" in cli("wait", running, code=103).err


def test_a_failed_job_exits_100(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(
        "import sys\nprint('out')\nprint('it was so', file=sys.stderr)\nsys.exit('no luck')\n"
    )
    spec = {"name": "f", "script": {"path": str(script)}, "recovery": {"max_restarts": 0}}
    done = cli("submit", cli.file(spec), "-f", code=100)
    assert "f failed: rank 0 ended with exit code 1: no luck" in done.err
    job = done.out.strip()
    last = "Last lines of rank 0 in attempt 1\n  it was so\n  no luck"
    words = f"{last}\nView all logs with `trainhall logs {job}`."
    # What was followed is not shown twice.
    assert words not in done.err
    assert f"View all logs with `trainhall logs {job}`." in done.err
    assert words in cli("wait", job, code=100).err
    assert words in cli("show", job).out

    def lines() -> bool:
        return "no luck" in cli("logs", job).out

    eventually("its last words", lines)
    assert cli("logs", job, "--stream", "stdout").out == "out\n"
    assert cli("logs", job, "--tail", "1", "--stream", "stderr").out == "no luck\n"
    cli("logs", job, "--stream", "sideways", code=2)


def test_pause_resume_and_wrong_states(cli: Cli, running: str) -> None:
    assert f"({running})  pausing" in cli("pause", running).out
    cli.cluster.wait_for(running, "paused")
    assert "resources.workers" in cli("resize", running, "--workers", "0", code=2).err
    assert "--workers" in cli("resize", running, code=2).err
    assert cli("resize", running, "--workers", "1", "-o", "json").json["world_size"] == 1
    cli("resume", running)
    cli.cluster.wait_for(running, "running")
    done = cli("resume", running, code=5)
    assert "running" in done.err
    changes = ["--set", "parallelism.strategy=fsdp", "--workers", "2"]
    assert "running" in cli("resume", running, *changes, code=5).err
    cli("pause", running)
    cli.cluster.wait_for(running, "paused")
    assert "training.steps" in cli("resume", running, "--set", "training.steps=3", code=2).err
    assert re.search(r"strategy +ddp$", cli("show", running).out, re.MULTILINE)
    answer = cli("resume", running, *changes, "-o", "json").json
    assert answer["spec"]["parallelism"]["strategy"] == "fsdp"
    cli.cluster.wait_for(running, "running")
    assert cli("show", running, "-o", "json").json["world_size"] == 2
    assert re.search(r"strategy +fsdp$", cli("show", running).out, re.MULTILINE)
    done = cli("cancel", running, "nothing", "--output", "json", code=1)
    assert [job["id"] for job in done.json] == [running]
    assert "there is no job 'nothing'" in done.err
    cli.cluster.wait_for(running, "cancelled")
    done = cli("pause", running, "nothing", code=5)
    assert "there is no job 'nothing'" in done.err
    one = cli(
        "--url", cli.cluster.url, "show", running, "-o", "json", TRAINHALL_URL="http://[::1]:9"
    )
    assert one.json["id"] == running


def test_unstarted_paused_job_resumes_with_changes(cli: Cli) -> None:
    job = cli.submit({**QUICK, "resources": {"workers": 64}})
    cli("pause", job)
    printed = cli("resume", job, "--workers", "1").out
    assert f"resumed by {FIRST_ADMIN} with resources.workers 1" in printed
    cli.cluster.wait_for(job, "completed")


def test_logs_follow_to_the_end_with_ranks(cli: Cli, tmp_path: Path) -> None:
    script, gate = tmp_path / "talks.py", tmp_path / "gate"
    script.write_text(
        "import os, sys, time\n"
        "for i in range(20):\n"
        "    print('line', i, flush=True)\n"
        "    while i == 10 and not os.path.exists(sys.argv[1]):\n"
        "        time.sleep(0.01)\n"
    )
    spec = {
        "name": "t",
        "script": {"path": str(script), "args": [str(gate)]},
        "resources": {"workers": 2},
    }
    job = cli.submit(spec)
    follower = subprocess.Popen(
        [*TRAINHALL, "logs", "-f", job, "--url", cli.cluster.url], stdout=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    begun = [follower.stdout.readline() for _ in range(22)]
    gate.touch()
    rest, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0
    lines = "".join([*begun, rest]).splitlines()
    for rank in (0, 1):
        mine = [line for line in lines if line.startswith(f"[{rank}] ")]
        assert mine == [f"[{rank}] line {i}" for i in range(20)]
    log_lines = [json.loads(line) for line in cli("logs", job, "-o", "json").out.splitlines()]
    assert {line["rank"] for line in log_lines} == {0, 1}
    assert sum(line["text"] == "line 7" for line in log_lines) == 2
    only = cli("logs", job, "--rank", "1").out.splitlines()
    assert only == [f"line {i}" for i in range(20)]
    refused = cli("logs", job, "--rank", "7", code=2).err
    assert f"--rank 7: job t ({job}) has ranks 0 to 1" in refused
    refused = cli("logs", job, "--attempt", "7", code=2).err
    assert f"--attempt 7: job t ({job}) has attempts 1 to 1" in refused


def test_nodes(cli: Cli) -> None:
    (node,) = cli("nodes", "ls", "-o", "json").json
    table = cli("nodes", "ls").out
    assert re.search(rf"{node['id']} +here +ready +\d[\w ]+ +2 × CPU slot +0/2 ", table)
    done = cli("nodes", "add", "gpu-07", "--label", "rack=b", "-o", "json")
    assert done.json["name"] == "gpu-07"
    assert done.json["join_token"] in done.json["command"]
    token = done.json["join_token"]
    assert done.json["command"].startswith(
        f"TRAINHALL_JOIN_TOKEN={token} trainhall agent --coordinator "
    )
    assert "loopback only" in done.err
    assert "`trainhall server --host 0.0.0.0`" in done.err
    listed = cli("nodes", "list", "-o", "json").json
    assert {n["name"]: n["labels"] for n in listed}["gpu-07"] == {"rack": "b"}
    cli("nodes", "add", "here", code=5)
    cli("nodes", "add", "x", "--label", "novalue", code=2)
    cli("nodes", "add", "no spaces", code=2)
    assert cli("nodes", "list", "-o", "name").out == cli("nodes", "ls", "-o", "name").out
    cli("nodes", "remove", "gpu-07")
    assert [n["name"] for n in cli("nodes", "list", "-o", "json").json] == ["here"]
    cli("nodes", "remove", "gpu-07", code=1)


def test_a_node_with_jobs_is_not_removed_unasked(cli: Cli, running: str) -> None:
    done = cli("nodes", "remove", "here", code=2, given="")
    assert re.search(rf"^  {running}  endless  running +\d+$", done.err, re.MULTILINE)
    assert "1 job would have to move; confirm with --yes" in done.err
    assert cli.cluster.get("/cluster/nodes")["items"][0]["state"] == "ready"


def test_checkpoints(cli: Cli, finished: str) -> None:
    table = cli("ckpt", "ls", finished).out.splitlines()
    assert [line.split()[1] for line in table[1:]] == ["20", "10"]
    assert all(" saved " in line for line in table[1:])
    newest, oldest = cli("ckpt", "ls", finished, "-o", "name").out.split()
    assert "step     20" in re.sub(r"step +", "step     ", cli("ckpt", "show", newest[:8]).out)
    (folder,) = cli.cluster.folder.glob(f"coordinator/checkpoints/{finished}/step-00000020-*")
    assert cli("ckpt", "show", newest, "-o", "json").json["location"] == str(
        folder.relative_to(cli.cluster.folder / "coordinator")
    )
    assert f"{folder.name} in the coordinator's data folder" in cli("ckpt", "show", newest).out
    assert cli("ckpt", "pin", oldest, "-o", "json").json["pinned"] is True
    cli("ckpt", "delete", oldest, code=5)
    assert cli("ckpt", "unpin", oldest, "-o", "json").json["pinned"] is False
    assert cli("ckpt", "verify", newest).out == f"checkpoint {newest} is intact\n"
    verified = cli("ckpt", "verify", newest, "-o", "json").json
    assert verified == {"id": newest, "good": True, "problems": []}
    verified = cli("ckpt", "gc", finished, "--dry-run", "-o", "json").json
    assert [(c["checkpoint"]["id"], c["keep"], c["reason"]) for c in verified] == [
        (newest, True, "one of the 3 newest"), (oldest, True, "one of the 3 newest"),
    ]  # fmt: skip
    assert cli("ckpt", "gc", finished, "--dry-run", "-o", "name").out == ""
    cli("ckpt", "restore", oldest, "--set", "training.steps=3", code=2)
    job = cli(
        "ckpt", "restore", oldest, "--set", "resources.workers=1",
        "--set", "parallelism.gradient_sync.bucket_mb=5", "-o", "json",
    ).json  # fmt: skip
    assert job["id"] == finished
    assert job["spec"]["parallelism"]["gradient_sync"]["bucket_mb"] == 5
    cli("wait", finished)
    assert cli("show", finished, "-o", "json").json["world_size"] == 1
    verified = cli("ckpt", "restore", oldest, "--workers", "64").out
    assert f"({finished}) is queued: needs 64 CPU slots; the whole cluster has" in verified
    verified = cli("ckpt", "restore", newest, "--workers", "2").out
    assert f"({finished}) resumes from step 20, the last step: nothing is left" in verified
    cli("wait", finished)
    cli("ckpt", "delete", oldest)
    left = [c for c in cli("ckpt", "ls", finished, "-o", "json").json if c["state"] == "committed"]
    assert oldest not in [c["id"] for c in left]
    cli("ckpt", "show", "ffffffffffff", code=1)
    verified = cli("ckpt", "restore", finished, code=2).err
    assert f"{finished} is a job; `trainhall ckpt ls {finished}` lists its checkpoints" in verified


def test_damaged_checkpoint_is_found_by_both_references(cli: Cli, tmp_path: Path) -> None:
    job = cli.submit(QUICK)
    cli("wait", job)
    checkpoint = cli("ckpt", "ls", job, "-o", "name").out.split()[0]
    exported = cli("ckpt", "export", checkpoint, str(tmp_path / "model"), "-o", "json")
    assert f"Downloading checkpoint {checkpoint} of step 20" in exported.err
    assert exported.json["size"] == (tmp_path / "model").stat().st_size
    assert exported.json["step"] == 20
    (folder,) = cli.cluster.folder.glob(f"coordinator/**/{job}/step-00000020-*")
    assert cli("ckpt", "verify", str(folder)).out.endswith("is intact\n")
    tensors = next(folder.glob("**/*.safetensors"))
    data = bytearray(tensors.read_bytes())
    data[-1] ^= 1
    tensors.write_bytes(data)
    for reference in (str(folder), checkpoint):
        done = cli("ckpt", "verify", reference, code=1)
        assert tensors.name in done.err
        assert "SHA-256" in done.err
        check = cli("ckpt", "verify", reference, "-o", "json", code=1).json
        assert (check["good"], [p["path"] for p in check["problems"]]) == (False, [tensors.name])
    done = cli("ckpt", "export", checkpoint, str(tmp_path / "other"), code=1)
    assert f"{tensors.name} of checkpoint {checkpoint} arrived damaged" in done.err
    assert not (tmp_path / "other").exists()
    cli("ckpt", "verify", str(folder / "no folder of that name"), code=2)


def test_unreachable_coordinator_exits_4(cli: Cli) -> None:
    done = cli("ls", "--url", "http://127.0.0.1:9", code=4)
    assert "no coordinator answers at http://127.0.0.1:9" in done.err
    cli("ls", "--url", "nonsense", code=2)


def test_follow_survives_a_coordinator_restart(cli: Cli, gate: Gate) -> None:
    path = cli.file({**ENDLESS, "task": gate.task("synthetic"), "training": {"steps": STEPS}})
    follower = subprocess.Popen(
        [*TRAINHALL, "submit", path, "-f", "--url", cli.cluster.url],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert follower.stdout is not None
    job = follower.stdout.readline().strip()
    cli.cluster.wait_for_step(job, 20)
    cli.cluster.coordinator.kill()
    cli.cluster.start_coordinator()
    gate.open()
    _, err = follower.communicate(timeout=60)
    assert follower.returncode == 0, err
    assert f"endless completed at step {STEPS}" in err


def test_config_file_defaults_yield_to_flags(cli: Cli) -> None:
    (cli.folder / "trainhall.toml").write_text(f'url = "{cli.cluster.url}"\noutput = "name"\n')
    clean: dict[str, Any] = {"TRAINHALL_URL": ""}
    ids = cli("ls", **clean).out.split()
    assert all(re.fullmatch("[0-9a-f]{12}", i) for i in ids)
    assert cli("ls", "-o", "json", **clean).json is not None
    (cli.folder / "trainhall.toml").write_text("nonsense = 1\n")
    assert "unknown key 'nonsense'" in cli("ls", code=2).err


def leaves(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, f"{path}{name} ")
        else:
            yield path + name, command


def test_every_command_has_help_with_examples_of_itself(cli: Cli) -> None:
    assert "Jobs:" in cli("--help").out
    assert "Examples:" in cli("ckpt", "restore", "-h").out
    for name, command in leaves(get_command(app)):
        text, _, examples = command.help.partition("Examples:")
        assert "\n " not in text, name
        assert "\nt" not in examples.partition("\n\n")[0], name
        assert "trainhall " + ("" if command.hidden else name) in examples, name
        for param in command.params:
            assert param.hidden or param.help, f"{name}: {param.name}"
    assert re.fullmatch(r"trainhall \d+\.\d+\.\d+\n", cli("--version").out)


HEAVY = {
    "torch", "httpx", "pydantic", "rich.progress", "sqlalchemy", "importlib.metadata",
    "urllib.request",
}  # fmt: skip


def imported(names: set[str], *arguments: str) -> list[str]:
    """Those of the modules that a command imports."""
    code = (
        f"import json, sys; sys.argv = ['trainhall', *{arguments!r}]\n"
        "from trainhall.cli.main import main\n"
        "try: main()\n"
        f"finally: print(json.dumps([n for n in {sorted(names)!r} if sys.modules.get(n)]))\n"
    )
    done = subprocess.run([TRAINHALL[0], "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_help_imports_nothing_heavy() -> None:
    assert imported(HEAVY, "--help") == []


def test_a_reader_that_leaves_is_no_error(cli: Cli, finished: str) -> None:
    command = f"{' '.join(TRAINHALL)} ls -o json --url {cli.cluster.url} | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout == "["
    assert done.stderr == ""


def test_gradients_are_captured_and_shown(cli: Cli) -> None:
    job = cli.cluster.submit(ENDLESS)
    cli.cluster.wait_for_step(job, 1)
    assert "No gradients are recorded" in cli("gradients", job).err
    lines = cli("gradients", job, "--capture").out.splitlines()
    assert lines[0].split()[:3] == ["PARAMETER", "NORM", "MEDIAN"]
    assert [line.split()[0] for line in lines[1:]] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    history = cli("gradients", job, "-o", "json").json
    assert history["answered"] == 1
    step = history["steps"][-1]["step"]
    assert f"at step {step}: no anomalies" in cli("show", job).out
    cli("cancel", job)
