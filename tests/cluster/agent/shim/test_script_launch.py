"""Scripts under the shim: what starts them, what they see, and what is told when they go wrong."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.cluster.agent_process import script
from support.cluster.attempts import read_tables
from support.cluster.shims import Run
from support.forking import forks
from support.ports import reserve
from support.waiting import eventually

from trainhall.training.link.launch import CheckpointPlan, Command
from trainhall.training.link.status import Outcome

SHOW = "import json, os, sys; print(json.dumps([dict(os.environ), os.getcwd(), sys.argv]))\n"
# What differs between two runs of torchrun, too.
OWN = {"MASTER_PORT", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"}


def shown(one: Run, rank: int = 0) -> Any:
    status = one.wait()
    assert status.outcome is Outcome.COMPLETED, status.failure
    return json.loads(one.folder.stdout(rank).read_text())


def test_the_environment_is_that_of_torchrun(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "show.py"
    path.write_text(
        "import json, os, sys\n"
        "with open(f'{sys.argv[1]}/{os.environ[\"RANK\"]}.json', 'w') as file:\n"
        "    json.dump(dict(os.environ), file)\n"
    )
    folders = tmp_path / "torchrun", tmp_path / "trainhall"
    for folder in folders:
        folder.mkdir()
    base = {k: v for k, v in os.environ.items() if not k.startswith("OMP_")}
    done = forks.run(
        forks.TORCHRUN,
        ["--nproc-per-node", "2", "--max-restarts", "3", "--master-port", str(reserve(run)),
         str(path), str(folders[0])],
        env=base,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    spec = {"script": {"path": str(path), "args": [str(folders[1])]}, "resources": {"workers": 2}}
    assert run(spec).wait().outcome is Outcome.COMPLETED
    for rank in range(2):
        theirs, ours = (json.loads((f / f"{rank}.json").read_text()) for f in folders)
        new = {name: value for name, value in theirs.items() if base.get(name) != value}
        for name, value in new.items():
            assert name in ours, name
            # Trainhall's ranks meet at rank 0, and share the host's cores.
            if name not in OWN | {"TORCHELASTIC_USE_AGENT_STORE", "OMP_NUM_THREADS"}:
                assert ours[name] == value, name


def test_code_is_the_working_folder(run: Any, tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "pkg").mkdir(parents=True)
    (code / "pkg" / "show.py").write_text(SHOW)
    by_path = {"script": {"path": "pkg/show.py"}, "code": "0" * 64}
    _, folder, arguments = shown(run(by_path, code=str(code)))
    assert (folder, arguments) == (str(code), [str(code / "pkg" / "show.py")])
    by_module = {"script": {"module": "pkg.show", "args": ["x"]}, "code": "0" * 64}
    _, folder, arguments = shown(run(by_module, code=str(code)))
    assert (folder, arguments) == (str(code), [str(code / "pkg" / "show.py"), "x"])
    within = {"script": {"path": "pkg/show.py", "working_dir": "pkg"}, "code": "0" * 64}
    assert shown(run(within, code=str(code)))[1] == str(code / "pkg")


def test_script_gets_its_parameters(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "show.py"
    path.write_text(
        "import json, sys\nimport trainhall as th\nprint(json.dumps([th.parameters(), sys.argv]))\n"
    )
    script = {"path": str(path), "args": ["--lr=${lr}", "${other}"]}
    given = {"lr": 0.1, "name": "a b", "on": True}
    one = run({"script": script, "parameters": given})
    assert shown(one) == [given, [str(path), "--lr=0.1", "${other}"]]


def test_any_program_may_run_a_script(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text('echo "$RANK of $WORLD_SIZE, $1, $PWD"\n')
    where = tmp_path / "elsewhere"
    where.mkdir()
    settings: dict[str, Any] = {"path": str(path), "args": ["a b"], "interpreter": "sh"}
    spec = {"script": settings | {"working_dir": str(where)}}
    one = run(spec)
    assert one.wait().outcome is Outcome.COMPLETED
    assert one.folder.stdout(0).read_text() == f"0 of 1, a b, {where}\n"
    spec["script"]["interpreter"] = "/bin/sh"
    assert run(spec).wait().outcome is Outcome.COMPLETED
    (where / "mine").write_text("#!/bin/sh\necho mine $1\n")
    (where / "mine").chmod(0o755)
    spec["script"] |= {"interpreter": "mine", "env": {"PATH": f"{where}:/usr/bin:/bin"}}
    one = run(spec)
    assert one.wait().outcome is Outcome.COMPLETED
    assert one.folder.stdout(0).read_text() == f"mine {path}\n"


def test_script_that_cannot_start_reports_why(run: Any, tmp_path: Path) -> None:
    good, plain = tmp_path / "good.py", tmp_path / "plain"
    good.write_text("")
    plain.write_text("no program")
    plain.chmod(0o755)
    (tmp_path / "unreadable").mkdir()
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"path": str(tmp_path / "gone.py")}, 127, "gone.py cannot be read: No such file"),
        ({"path": str(good / "x.py")}, 127, "cannot be read: Not a directory"),
        ({"path": str(good), "interpreter": "julia-9"}, 127, "'julia-9' is not on the PATH"),
        (
            {"path": str(good), "interpreter": "/no/python"},
            126,
            "/no/python cannot be run: No",
        ),
        ({"path": str(good), "interpreter": str(good)}, 126, "cannot be run: Permission denied"),
        ({"path": str(good), "interpreter": str(plain)}, 126, "cannot be run: Exec format error"),
        ({"path": str(good), "working_dir": "/no"}, 127, "/no cannot be entered: No such"),
        ({"module": "no_such_module"}, 1, "No module named no_such_module"),
    ]
    shims = [(run({"script": command}), code, why) for command, code, why in cases]
    for one, code, why in shims:
        status = one.wait()
        assert status.outcome is Outcome.FAILED
        assert (status.failure.exit_code, why in status.failure.message) == (code, True), status


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_script_is_reported(run: Any, tmp_path: Path) -> None:
    spec = script(tmp_path, "")
    Path(spec["script"]["path"]).chmod(0)
    assert "cannot be read: Permission denied" in run(spec).wait().failure.message


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
child = subprocess.Popen([sys.executable, "-c", "import signal, time\\n"
                          "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\ntime.sleep(600)"])
sys.stdout.buffer.write(bytes(range(256)) * 4)
print("ready", flush=True)
time.sleep(600)
"""


def test_nothing_of_a_stubborn_script_is_left(run: Any, tmp_path: Path) -> None:
    one = run(script(tmp_path, STUBBORN, grace_seconds=0.2))
    one.wait_for_output(b"ready")
    (rank,) = one.status.ranks
    children = psutil.Process(rank.pid).children(recursive=True)
    assert len(children) == 2
    one.send_command(Command.STOP)
    status = one.wait()
    assert (status.outcome, status.ranks[0].signal) == (Outcome.STOPPED, signal.SIGKILL)
    for child in children:
        eventually("it to end", partial(lambda child: not child.is_running(), child))


def test_file_size_limit_is_the_scripts_failure(run: Any, tmp_path: Path) -> None:
    """Output that cannot be written: the script sees the error, and its reason is told."""
    text = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for _ in range(1000):
    print("x" * 100)
"""
    status = run(script(tmp_path, text)).wait()
    assert status.outcome is Outcome.FAILED
    assert "File too large" in status.failure.message


def test_script_exit_code_is_reported(run: Any, tmp_path: Path) -> None:
    assert "exit code 3" in run(script(tmp_path, "raise SystemExit(3)")).wait().failure.message


# -- with the SDK -------------------------------------------------------------------------------

SDK = """
import sys, time
from types import MappingProxyType
import torch
import trainhall as th
here = th.init(total_steps=100000)
total = int(sys.argv[1])
weight = torch.zeros(4)
saved = th.checkpoint.load()
th.on_resize(lambda before, now: print(f"resized {before} {now}", flush=True))
if saved is not None:
    weight = saved["weight"]
    print("loaded", th.checkpoint.step, weight.tolist(), saved["nested"], flush=True)
for step in range(th.checkpoint.step + 1, total + 1):
    weight += 1
    th.report(loss=torch.tensor(1.0 / step), step=step)
    time.sleep(0.005)
    stop = th.should_stop()
    if stop:
        nested = {1: [None, True, (2, "x")], "half": 0.5}
        th.checkpoint.save({"weight": weight, "nested": MappingProxyType(nested)}, step=step)
        th.leave()
    if step == 20:
        print("going", flush=True)
"""


def events(one: Run, rank: int = 0) -> dict[str, Any]:
    lines = one.folder.events(rank).read_text().splitlines()
    return {event["kind"]: event["data"] for event in map(json.loads, lines)}


@pytest.mark.parametrize("workers", [1, 2])
def test_script_pauses_at_one_step_and_resumes(run_warm: Any, tmp_path: Path, workers: int) -> None:
    folder = str(tmp_path / "checkpoints")
    plan = CheckpointPlan(folder=folder, upload=False)
    one = run_warm(script(tmp_path, SDK, "1000000", workers=workers), checkpoint=plan)
    one.wait_for_output(b"going")
    one.send_command(Command.PAUSE)
    status = one.wait()
    assert status.outcome is Outcome.PAUSED, status.failure
    assert {rank.exit_code for rank in status.ranks} == {83}
    sent = events(one)
    step = sent["paused"]["step"]
    assert sent["started"] == {"resumed_from": None, "total_steps": 100000}
    name = sent["checkpoint"]["name"]
    assert name == f"step-{step:08d}-a1-g1"

    # One rank goes on from what any number saved.
    plan = CheckpointPlan(folder=folder, upload=False, resume=[name])
    again = run_warm(script(tmp_path, SDK, str(step + 3)), checkpoint=plan, attempt=2)
    assert again.wait().outcome is Outcome.COMPLETED
    assert events(again)["started"]["resumed_from"] == step
    assert events(again)["stepped"]["step"] == step + 1
    output = again.folder.stdout(0).read_text()
    assert f"loaded {step} {[float(step)] * 4}" in output
    assert "{1: [None, True, (2, 'x')], 'half': 0.5}" in output
    assert ("resized 2 1" in output) == (workers == 2)


def test_script_reports_reach_the_spool(run_warm: Any, tmp_path: Path) -> None:
    one = run_warm(script(tmp_path, SDK, "30", workers=2))
    assert one.wait().outcome is Outcome.COMPLETED
    for rank in range(2):
        tables = list(read_tables(one.folder.metrics(rank).read_bytes()))
        assert {writer for writer, _ in tables} == {None if rank == 0 else rank}
        points = [point for _, columns in tables for point in columns["loss"]]
        assert [step for step, _ in points] == list(range(1, 31))
        assert points[3][1] == 0.25


def test_script_with_own_checkpoints_reports_no_start_step(run: Any, tmp_path: Path) -> None:
    text = "import trainhall as th\nth.init(total_steps=9)\nth.report(loss=1, step=7)\n"
    one = run(script(tmp_path, text))
    assert one.wait().outcome is Outcome.COMPLETED
    assert events(one)["started"] == {"total_steps": 9}
    stepped = events(one)["stepped"]
    assert (stepped["generation"], stepped["step"]) == (1, 7)
    assert stepped["loaded"] > 0


def test_script_reports_start_step_when_loading_late(run_warm: Any, tmp_path: Path) -> None:
    text = """
import trainhall as th
th.report(loss=1, step=0)
assert not th.should_stop()
assert th.checkpoint.load()
assert th.checkpoint.load()
th.report(loss=1)
"""
    folder = str(tmp_path / "checkpoints")
    plan = CheckpointPlan(folder=folder, upload=False)
    save = "import trainhall as th\nth.checkpoint.save({'a': 1}, step=4)\nth.leave()\n"
    assert run_warm(script(tmp_path, save), checkpoint=plan).wait().outcome is Outcome.COMPLETED
    names = ["step-00000009-a1-g1", "step-00000004-a1-g1"]
    plan = CheckpointPlan(folder=folder, upload=False, resume=names)
    one = run_warm(script(tmp_path, text), checkpoint=plan, attempt=2)
    assert one.wait().outcome is Outcome.COMPLETED
    lines = map(json.loads, one.folder.events(0).read_text().splitlines())
    first, second = [event["data"] for event in lines if event["kind"] == "started"]
    assert "resumed_from" not in first
    assert second["resumed_from"] == 4
    assert second["passed_over"][0]["name"] == names[0]
    assert names[0] in second["note"]


def test_script_exception_is_reported_verbatim(run: Any, tmp_path: Path) -> None:
    text = "import trainhall as th\nth.init()\nraise KeyError('no such column')\n"
    status = run(script(tmp_path, text)).wait()
    assert status.failure.message == "rank 0 failed: KeyError: 'no such column'"


def test_only_one_process_speaks_for_a_rank(run: Any, tmp_path: Path) -> None:
    """A child that inherits the environment reports to the terminal; a later one takes over."""
    text = """
import os, subprocess, sys
if sys.argv[1:] == ["parent"]:
    for _ in range(2):
        subprocess.run([sys.executable, __file__, "first"], check=True)
    sys.exit()
import trainhall as th
th.init()
step = int(sys.argv[1] == "nested") + 1
th.report(loss=step)
if sys.argv[1:] == ["first"]:
    subprocess.run([sys.executable, __file__, "nested"], check=True)
    if os.fork() == 0:
        th.report(loss=9)
        sys.exit()
    os.wait()
"""
    one = run(script(tmp_path, text, "parent"))
    assert one.wait().outcome is Outcome.COMPLETED
    tables = list(read_tables(one.folder.metrics(0).read_bytes()))
    assert [columns["loss"] for _, columns in tables] == [[(1, 1.0)], [(1, 1.0)]]
    assert one.folder.stderr(0).read_text().count("step 1  loss 2") == 2


def test_process_spawned_by_rank_does_not_replace_it(run_warm: Any, tmp_path: Path) -> None:
    """It has the rank's environment, and the other rank would wait for it as for the rank."""
    text = """
import multiprocessing
import trainhall as th
def work():
    assert th.init().world_size == 2
    for call in (th.should_stop, th.leave, th.checkpoint.load, lambda: th.checkpoint.save({})):
        try:
            call()
        except RuntimeError as error:
            print(error)
if __name__ == "__main__":
    rank = th.init().rank
    assert not th.should_stop()
    if rank == 0:
        worker = multiprocessing.get_context("spawn").Process(target=work)
        worker.start()
        worker.join()
        assert worker.exitcode == 0
    th.report(loss=1)
    assert not th.should_stop()
"""
    one = run_warm({**script(tmp_path, text), "resources": {"workers": 2}})
    assert one.wait().outcome is Outcome.COMPLETED, one.folder.stderr(0).read_text()
    lines = one.folder.stdout(0).read_text().splitlines()
    assert len(lines) == 4
    assert all("a process that the script started" in line for line in lines)


def test_process_group_within_a_rank_stays_separate(run: Any, tmp_path: Path) -> None:
    text = """
import os, subprocess, sys
if os.environ["WORLD_SIZE"] == "1":
    env = {**os.environ, "WORLD_SIZE": "2"}
    sys.exit(subprocess.run([sys.executable, __file__], env=env).returncode)
import trainhall as th
assert th.init(join=False).world_size == 2
th.report(loss=1)
assert not th.should_stop()
"""
    one = run(script(tmp_path, text))
    assert one.wait().outcome is Outcome.COMPLETED, one.folder.stderr(0).read_text()
    assert not one.folder.metrics(0).exists()


def test_leaving_unasked_is_the_scripts_own_end(run: Any, tmp_path: Path) -> None:
    one = run(script(tmp_path, "import trainhall as th\nth.report(loss=1)\nth.leave()\n"))
    assert one.wait().outcome is Outcome.COMPLETED
    assert one.folder.metrics(0).stat().st_size > 0


def test_pause_before_first_stop_query_is_a_signal(run: Any, tmp_path: Path) -> None:
    text = "import time\nimport trainhall as th\nth.init()\nprint('going', flush=True)\n"
    one = run(script(tmp_path, text + "time.sleep(600)\n"))
    one.wait_for_output(b"going")
    one.send_command(Command.PAUSE)
    status = one.wait()
    assert (status.outcome, status.ranks[0].signal) == (Outcome.PAUSED, signal.SIGTERM)


IMPATIENT = """
import sys
from trainhall.cluster.agent.shim import escalation, main
escalation.UNANSWERED_SECONDS = 0.5
sys.exit(main.main())
"""


@pytest.mark.parametrize("reported", [False, True])
def test_script_that_stops_querying_gets_a_signal(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reported: bool
) -> None:
    """A drain would wait for ever; but one that was told to stop may still save."""

    def start(self: Run, *arguments: str) -> Any:
        return subprocess.Popen(
            [sys.executable, "-c", IMPATIENT, str(self.folder.path), *arguments],
            stdin=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    monkeypatch.setattr(Run, "start", start)
    text = """
import sys, time
import trainhall as th
th.should_stop()
print("going", flush=True)
while sys.argv[1] == "True" and not th.should_stop():
    time.sleep(0.01)
time.sleep(1.5 if sys.argv[1] == "True" else 600)
th.checkpoint.save({"weight": 1}, step=3)
th.leave()
"""
    plan = CheckpointPlan(folder=str(tmp_path / "checkpoints"), upload=False)
    one = run(script(tmp_path, text, str(reported)), checkpoint=plan)
    one.wait_for_output(b"going")
    one.send_command(Command.PAUSE)
    status = one.wait()
    (rank,) = status.ranks
    ended = (83, None) if reported else (None, signal.SIGTERM)
    assert (status.outcome, rank.exit_code, rank.signal) == (Outcome.PAUSED, *ended)


@pytest.mark.parametrize("swallowed", [False, True])
def test_script_finishes_its_exit_handlers(run: Any, tmp_path: Path, swallowed: bool) -> None:
    """Also what it registered before the SDK; and an exit that it swallows is none."""
    text = """
import atexit, sys, time
atexit.register(print, "bye")
import trainhall as th
th.init()
while not th.should_stop():
    time.sleep(0.01)
    print("going", flush=True)
th.checkpoint.save({"weight": 1}, step=1)
try:
    th.leave()
except SystemExit:
    if sys.argv[1] == "False":
        raise
"""
    plan = CheckpointPlan(folder=str(tmp_path / "checkpoints"), upload=False)
    one = run(script(tmp_path, text, str(swallowed)), checkpoint=plan)
    one.wait_for_output(b"going")
    one.send_command(Command.PAUSE)
    status = one.wait()
    (rank,) = status.ranks
    assert rank.exit_code == (0 if swallowed else 83), status.failure
    assert status.outcome is (Outcome.COMPLETED if swallowed else Outcome.PAUSED)
    assert one.folder.stdout(0).read_text().endswith("bye\n")


def test_script_pause_without_save_is_reported(run_warm: Any, tmp_path: Path) -> None:
    text = """
import time
import trainhall as th
while not th.should_stop():
    print("going", flush=True)
    time.sleep(0.01)
th.leave()
"""
    one = run_warm(script(tmp_path, text))
    one.wait_for_output(b"going")
    one.send_command(Command.PAUSE)
    assert one.wait().outcome is Outcome.PAUSED
    assert "paused without saving" in events(one)["note"]["message"]
    assert "starts again from its beginning" in events(one)["note"]["message"]


def test_checkpoints_of_scripts_own_are_reported(run_warm: Any, tmp_path: Path) -> None:
    text = """
import time
import trainhall as th
th.resume_own(7)
th.report(loss=1.0, step=8)
while not th.should_stop():
    print("going", flush=True)
    time.sleep(0.01)
th.leave(saved="ckpt.pt")
"""
    one = run_warm(script(tmp_path, text))
    one.wait_for_output(b"going")
    one.send_command(Command.PAUSE)
    assert one.wait().outcome is Outcome.PAUSED
    found = events(one)
    assert found["started"]["resumed_from"] == 7
    assert found["stepped"]["step"] == 8
    assert found["note"]["message"] == "the script saved ckpt.pt, from which it resumes by itself"


def test_script_pause_with_failed_save_is_reported(run_warm: Any, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    plan = CheckpointPlan(folder=str(blocked / "checkpoints"), upload=False)
    one = run_warm(script(tmp_path, SDK, "1000000", workers=2), checkpoint=plan)
    one.wait_for_output(b"going")
    one.send_command(Command.PAUSE)
    status = one.wait()
    assert status.outcome is Outcome.FAILED
    assert "NotSavedError: rank 0 could not save the checkpoint of step" in status.failure.message


def test_metrics_of_a_saved_step_outlast_a_kill(run_warm: Any, tmp_path: Path) -> None:
    """The next attempt starts behind that step, and would not measure it again."""
    text = """
import os, signal
import trainhall as th
from trainhall.training.sdk import reporting
reporting.FLUSH_SECONDS = 3600.0
for step in range(1, 4):
    th.report(loss=step, step=step)
th.checkpoint.save({"weight": 1}, step=3)
os.kill(os.getpid(), signal.SIGKILL)
"""
    plan = CheckpointPlan(folder=str(tmp_path / "checkpoints"), upload=False)
    one = run_warm(script(tmp_path, text), checkpoint=plan)
    assert one.wait().ranks[0].signal == signal.SIGKILL
    tables = read_tables(one.folder.metrics(0).read_bytes())
    assert [point for _, columns in tables for point in columns["loss"]] == [
        (1, 1.0), (2, 2.0), (3, 3.0)
    ]  # fmt: skip


def test_a_full_disk_stops_no_script(run: Any, tmp_path: Path) -> None:
    """The spool cannot grow: metrics are lost, and training is not."""
    text = """
import resource, signal
import trainhall as th
th.init()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for step in range(1, 2001):
    th.report(loss=step, accuracy=step, step=step)
"""
    one = run(script(tmp_path, text))
    assert one.wait().outcome is Outcome.COMPLETED
    assert one.folder.stderr(0).read_text() == ""
    assert one.folder.metrics(0).stat().st_size <= 4096
