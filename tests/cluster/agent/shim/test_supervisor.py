"""The shim alone, as `trainhall run` uses it: outcomes, failures, commands, nothing left behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.cluster.agent_process import launch_of, script
from support.cluster.shims import Run
from support.waiting import PATIENCE, eventually

from trainhall.cluster.agent.os_support import linux, processes
from trainhall.cluster.agent.shim import folder_ipc
from trainhall.cluster.agent.shim import main as shim_main
from trainhall.cluster.agent.shim.rank_process import writer_name
from trainhall.training.link.failure import Cause
from trainhall.training.link.folder import AttemptFolder, replace_json
from trainhall.training.link.launch import CheckpointPlan, Command, RankSlot, Rendezvous
from trainhall.training.link.status import Outcome, ShimStatus
from trainhall.training.process.forked import PADDING_VARIABLE


def test_script_environment_matches_torchrun(run: Any, tmp_path: Path) -> None:
    text = """
import json, os, sys
print(json.dumps({"env": dict(os.environ), "args": sys.argv[1:], "cwd": os.getcwd()}))
"""
    spec = script(tmp_path, text, "--lr", "0.1", workers=2)
    spec["script"]["env"] = {"MINE": "yes", "RANK": "77"}
    one = run(spec)
    status = one.wait()
    assert status.outcome is Outcome.COMPLETED
    assert status.failure is None
    for rank in range(2):
        environment = json.loads(one.folder.stdout(rank).read_text())
        env = environment["env"]
        assert (env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"]) == (str(rank), str(rank), "2")
        assert env["LOCAL_WORLD_SIZE"] == "2"
        assert env["GROUP_RANK"] == "0"
        assert env["MASTER_ADDR"] == "127.0.0.1"
        assert status.rendezvous is not None
        assert env["MASTER_PORT"] == str(status.rendezvous.port)
        assert env["TORCHELASTIC_RUN_ID"] == env["TRAINHALL_JOB_ID"] == "job"
        assert env["TRAINHALL_WRITER"] == writer_name(one.launch, rank)
        assert env["CUDA_VISIBLE_DEVICES"] == ""
        assert env["MINE"] == "yes"
        assert PADDING_VARIABLE not in env
        assert environment["args"] == ["--lr", "0.1"]
        assert environment["cwd"] == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "message", "tail"),
    [
        (
            "import sys; sys.stderr.write('no data\\n'); sys.exit(3)",
            "exit code 3: no data",
            "no data",
        ),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV", ""),
        ("raise ValueError('wrong')", "exit code 1: ValueError: wrong", "ValueError: wrong"),
        (
            "import sys; sys.exit('[rank0]: KeyError: 3')",
            "exit code 1: KeyError: 3",
            "[rank0]: KeyError: 3",
        ),
        ("import sys; sys.exit('\\x1b[31m bad\\x07  luck\\x1b[0m\\n \\n')", "1: bad luck", "luck"),
        ("import sys; sys.stderr.write('\\0' + 'é' * 9000); sys.exit(1)", "exit code 1", "é"),
    ],
)
def test_failure_includes_the_last_output(
    run: Any, tmp_path: Path, text: str, message: str, tail: str
) -> None:
    status = run(script(tmp_path, text)).wait()
    assert status.outcome is Outcome.FAILED
    assert message in status.failure.message
    assert tail in status.failure.log_tail
    assert len(status.failure.log_tail) <= 4096


def test_crash_includes_location_and_earlier_output(run: Any, tmp_path: Path) -> None:
    text = """
import faulthandler, os, sys
faulthandler.enable()
def crash():
    os.kill(os.getpid(), 7)
print("bad luck", file=sys.stderr)
crash()
"""
    failure = run(script(tmp_path, text)).wait().failure
    assert failure.message == "rank 0 was ended by SIGBUS: bad luck"
    assert failure.cause is Cause.CRASH
    assert failure.evidence == f"SIGBUS in crash ({tmp_path}/script.py, line 5)"
    assert "Fatal Python error: Bus error" in failure.log_tail


def test_supervisor_sees_an_exit_without_sigchld(run: Any, tmp_path: Path) -> None:
    """The shim is started with SIGCHLD blocked, which outlives `exec`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        one = run(script(tmp_path, "import sys; sys.exit(3)"))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert one.wait().failure.exit_code == 3


def test_missing_script_is_named(run: Any, tmp_path: Path) -> None:
    spec = {"script": {"path": str(tmp_path / "gone" / "train.py")}}
    status = run(spec).wait()
    assert status.outcome is Outcome.FAILED
    assert "No such file" in status.failure.log_tail


def test_peers_of_a_failed_rank_are_ended(run: Any, tmp_path: Path) -> None:
    text = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
if os.environ["RANK"] == "1":
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    sys.exit(5)
time.sleep(600)
"""
    go = tmp_path / "go"
    one = run(script(tmp_path, text, str(go), workers=2, grace_seconds=0.2))
    one.wait_for_output(b"ready", 0)
    one.wait_for_output(b"ready", 1)
    go.touch()
    status = one.wait()
    assert (status.failure.rank, status.failure.exit_code) == (1, 5)
    assert status.ranks[0].signal == signal.SIGKILL


GRACEFUL = """
import signal, sys, time
def leave(*_):
    print("tidied up", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("command", "outcome"),
    [(Command.STOP, Outcome.STOPPED), (Command.PAUSE, Outcome.PAUSED)],
)
def test_script_may_tidy_up(run: Any, tmp_path: Path, command: Command, outcome: Outcome) -> None:
    one = run(script(tmp_path, GRACEFUL))
    one.wait_for_output(b"ready")
    one.send_command(command)
    folder_ipc.send_command(one.folder, command)  # once more, unless it has ended already
    assert one.wait().outcome is outcome
    assert b"tidied up" in one.folder.stdout(0).read_bytes()


def test_sigterm_means_stop(run: Any, tmp_path: Path) -> None:
    one = run(script(tmp_path, GRACEFUL))
    one.wait_for_output(b"ready")
    one.process.terminate()
    assert one.wait().outcome is Outcome.STOPPED


def test_attached_attempt_ends_with_its_terminal(run: Any, tmp_path: Path) -> None:
    one = run(script(tmp_path, GRACEFUL), "--attached")
    one.wait_for_output(b"ready")
    one.process.stdin.close()
    assert one.wait().outcome is Outcome.STOPPED


def test_supervisor_ends_leftovers_of_completed_script(run: Any, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    text = """
import subprocess, sys
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
"""
    assert run(script(tmp_path, text, str(note))).wait().outcome is Outcome.COMPLETED
    assert not psutil.pid_exists(int(note.read_text()))


@pytest.mark.parametrize("content", [b"", b'{"job_id": "x"}', None])
def test_unreadable_launch_is_recorded(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    folder = AttemptFolder(tmp_path / "job" / "a3-g2")
    folder.path.mkdir(parents=True)
    if content is not None:
        folder.launch.write_bytes(content)
    assert shim_main.supervise(str(folder.path), fork=False) == 0
    status = ShimStatus.model_validate_json(folder.status.read_bytes())
    assert (status.job_id, status.attempt, status.generation) == ("job", 3, 2)
    assert (status.phase, status.outcome) == ("exited", Outcome.FAILED)
    assert status.failure is not None
    assert status.failure.cause is Cause.STORAGE
    assert status.failure.message.startswith(f"{folder.launch} cannot be read: ")
    assert folder_ipc.read_claim(folder) is folder_ipc.Claim.RELEASED
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.processes
def test_full_disk_before_the_start_is_recorded(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    replace_json(folder.launch, launch_of(script(tmp_path, "pass")))
    folder.control.mkdir()  # in the way of the file
    shim = [sys.executable, "-m", "trainhall.cluster.agent.shim.main", str(tmp_path)]
    done = subprocess.run(shim, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    status = ShimStatus.model_validate_json(folder.status.read_bytes())
    assert (status.phase, status.outcome) == ("exited", Outcome.FAILED)
    assert status.failure is not None
    assert status.failure.message == "the ranks cannot be started: Is a directory"


def test_one_shim_a_folder(run: Any, tmp_path: Path) -> None:
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    text = """
import os, sys, time
open(sys.argv[1], "a").write("x")
print(1, flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
"""
    one = run(script(tmp_path, text, str(ledger), str(gate)))
    one.wait_for_output(b"1")
    assert folder_ipc.read_claim(one.folder) is folder_ipc.Claim.HELD
    second = one.start()
    assert second.wait(timeout=PATIENCE) == 0
    gate.touch()
    assert one.wait().outcome is Outcome.COMPLETED
    assert folder_ipc.read_claim(one.folder) is folder_ipc.Claim.RELEASED
    third = one.start()
    assert third.wait(timeout=PATIENCE) == 0
    for late in (second, third):
        late.stdin.close()
    assert ledger.read_text() == "x"


def test_ranks_die_with_the_shim(run: Any, tmp_path: Path) -> None:
    one = run(script(tmp_path, GRACEFUL))
    one.wait_for_output(b"ready")
    (rank,) = one.status.ranks
    one.process.kill()
    eventually("the rank to end", lambda: not psutil.pid_exists(rank.pid))
    assert folder_ipc.read_claim(one.folder) is folder_ipc.Claim.RELEASED


SYNTHETIC = {
    "task": {"name": "synthetic", "params": {"step_seconds": 0.005}},
    "training": {"steps": 20, "global_batch_size": 32},
    "resources": {"workers": 2},
}


@pytest.mark.parametrize("arguments", [("--preload",), ()], ids=["forked", "executed"])
def test_task_runs_either_way(run: Any, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    plan = CheckpointPlan(folder=str(tmp_path / "checkpoints"), upload=False)
    one = run(SYNTHETIC, *arguments, checkpoint=plan)
    status = one.wait()
    assert status.outcome is Outcome.COMPLETED, status.failure
    assert len(list((tmp_path / "checkpoints").glob("step-00000020-*"))) == 1
    assert {r.exit_code for r in status.ranks} == {0}


def test_task_failure_is_taken_from_its_event(run: Any, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    plan = CheckpointPlan(folder=str(blocked / "checkpoints"), upload=False)
    status = run(SYNTHETIC, "--preload", checkpoint=plan).wait()
    assert status.outcome is Outcome.FAILED
    assert status.failure.message.startswith("rank ")
    assert "failed: " in status.failure.message
    assert status.failure.exit_code == 1
    assert not status.failure.final


def test_user_error_is_reported_as_final(run: Any, tmp_path: Path) -> None:
    task = {"name": "mnist", "params": {"root": str(tmp_path / "nowhere")}}
    status = run({"task": task, "training": {"steps": 1}}, "--preload").wait()
    assert "BadDataError" in status.failure.message
    assert status.failure.final


@pytest.mark.skipif(not linux.IS_LINUX, reason="the environment of a fork is shown on Linux only")
def test_forked_ranks_are_distinguishable(run: Any, tmp_path: Path) -> None:
    spec = {**SYNTHETIC, "training": {"steps": 10**6, "global_batch_size": 32}}
    room = {**os.environ, **linux.environment_padding()}
    plan = CheckpointPlan(folder=str(tmp_path / "checkpoints"), upload=False)
    launch = launch_of(spec, checkpoint=plan)
    folder = AttemptFolder(tmp_path / "attempt")
    folder.path.mkdir()
    replace_json(folder.launch, launch)
    shim = subprocess.Popen(
        [
            sys.executable, "-m", "trainhall.cluster.agent.shim.main", str(folder.path),
            "--preload",
        ],
        stdin=subprocess.DEVNULL, env=room, start_new_session=True,
    )  # fmt: skip
    try:
        pids = eventually("three marked processes", lambda: _three(folder))
        ranks = {}
        for pid in pids:
            env = psutil.Process(pid).environ()
            assert env["TRAINHALL_ATTEMPT_FOLDER"] == str(folder.path)
            if "RANK" in env:
                ranks[env["RANK"]] = psutil.Process(pid).name()
        assert ranks == {n: f"rank {n} {launch.job_id}"[:15] for n in ("0", "1")}
    finally:
        shim.terminate()
        assert shim.wait(timeout=PATIENCE) == 0


def _three(folder: AttemptFolder) -> set[int] | None:
    """Two ranks and the rendezvous store."""
    found = processes.marked(folder.path)
    return found if len(found) == 3 else None


def test_two_hosts_join_at_the_first_store(run: Any, tmp_path: Path) -> None:
    plan = CheckpointPlan(folder=str(tmp_path / "checkpoints"), upload=False)

    def host(node_rank: int, rendezvous: Rendezvous | None) -> Run:
        place = RankSlot(rank=node_rank, local_rank=0, device_kind="cpu", device_index=0)
        started: Run = run(
            SYNTHETIC, "--preload",
            checkpoint=plan, ranks=[place], node_rank=node_rank, num_nodes=2,
            rendezvous=rendezvous, address="127.0.0.1",
        )  # fmt: skip
        return started

    first = host(0, None)
    store = eventually(
        "the store", lambda: first.folder.status.exists() and first.status.rendezvous
    )
    second = host(1, store)
    assert (first.wait().outcome, second.wait().outcome) == (Outcome.COMPLETED,) * 2
