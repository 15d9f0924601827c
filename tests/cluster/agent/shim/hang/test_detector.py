"""Hangs: which ranks take no step any more, what may take long, and what is saved of them."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.cluster.agent_process import script

from trainhall.cluster.agent.shim.hang import detector, flight_record, stack_dumps
from trainhall.cluster.agent.shim.hang.detector import (
    RankObservation,
    describe,
    detect_stall,
    hang_floor,
)
from trainhall.training.link.failure import Cause
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.progress import Activity, Part, RankProgress, newest_step, read
from trainhall.training.link.progress_writer import Progress
from trainhall.training.link.stall import Stall
from trainhall.training.link.status import Outcome
from trainhall.training.spec.parse import validate_spec


def seen(
    rank: int, idle: float, activity: Activity = Activity.STEPPING, **more: Any
) -> RankObservation:
    own = {name: more.pop(name) for name in ("state", "cpu") if name in more}
    return RankObservation(
        rank, RankProgress(activity=activity, step=more.pop("step", 10), **more), idle, **own
    )


def test_nothing_is_a_hang_before_the_limit() -> None:
    assert detect_stall([seen(0, 29), seen(1, 31)], 30) is None
    assert detect_stall([seen(0, 31), seen(1, 31)], 30) is not None
    assert detect_stall([], 30) is None


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"mean_seconds": 0.1, "longest_seconds": 1.0}, 30),
        ({"mean_seconds": 8.0, "longest_seconds": 9.0}, 80),
        # One step was slow, such as one that was compiled: the next such one is no hang.
        ({"mean_seconds": 0.1, "longest_seconds": 300.0}, 600),
    ],
)
def test_limit_follows_from_the_jobs_own_steps(options: dict[str, Any], limit: float) -> None:
    assert detect_stall([seen(0, limit - 1, **options), seen(1, limit - 1)], 30) is None
    stall = detect_stall([seen(0, limit, **options), seen(1, limit)], 30)
    assert stall is not None
    assert stall.limit == limit


@pytest.mark.parametrize(
    "activity",
    [Activity.FIRST_STEP, Activity.READING, Activity.EVALUATING, Activity.SAVING, Activity.ENDING],
)
def test_hang_detector_allows_long_work_half_an_hour(activity: Activity) -> None:
    # The other rank waits for it, in the midst of a step.
    assert detect_stall([seen(0, 1700), seen(1, 1700, activity)], 30) is None
    stall = detect_stall([seen(0, 1900), seen(1, 1900, activity)], 30)
    assert stall is not None


@pytest.mark.parametrize("activity", [Activity.STARTING, Activity.REGROUPING])
def test_hang_detector_ignores_work_with_own_limits(activity: Activity) -> None:
    assert detect_stall([seen(0, 10**6), seen(1, 10**6, activity)], 30) is None


def test_hang_detector_ignores_ranks_waiting_to_join() -> None:
    """Where ranks regroup in place. One that is to come has told nothing yet."""
    meets, comes = seen(0, 10**6, Activity.JOINING), RankObservation(1, None, 10**6)
    own = detect_stall([meets, comes, seen(2, 40, parts=3)], 30, 150)
    assert own is not None
    assert (own.behind, own.is_sure) == (2, False)
    assert [rank.waits for rank in own.ranks] == [True, True, False]
    assert detect_stall([meets, comes, seen(2, 20)], 30, 150) is None
    assert detect_stall([meets, comes, seen(2, 10**6, Activity.STARTING)], 30, 150) is None
    # Of several hosts another one may have the rank that all wait for.
    all_wait = detect_stall([meets, comes], 30, 150)
    assert all_wait is not None
    assert all_wait.behind is None
    assert all(rank.waits for rank in all_wait.ranks)


def test_hang_detector_names_rank_that_leaves_too_late() -> None:
    leaves = seen(1, 149, Activity.REGROUPING)
    others = [seen(0, 149, Activity.JOINING), seen(2, 0, Activity.EVALUATING)]
    assert detect_stall([leaves, *others], 30, 150) is None
    stall = detect_stall([seen(1, 151, Activity.REGROUPING), *others], 30, 150)
    assert stall is not None
    assert (stall.behind, stall.is_sure, stall.limit) == (1, True, 150)
    assert "rank 1 is behind, leaving its group after step 10" in describe(stall)


def test_hang_detector_gives_state_transfer_time_to_finish() -> None:
    def both(idle: float) -> Stall | None:
        taking = Activity.RECEIVING_STATE
        return detect_stall(
            [seen(0, idle, taking, parts=7), seen(1, idle, taking, parts=5)], 30, 150
        )

    assert both(149) is None
    stall = both(151)
    assert stall is not None
    assert (stall.behind, stall.is_sure) == (1, False)


def test_hang_detector_ignores_silent_scripts_and_debuggers() -> None:
    assert detect_stall([RankObservation(0, None, 10**6)], 30) is None
    assert detect_stall([seen(0, 99), RankObservation(1, None, 99)], 30) is None
    assert detect_stall([seen(0, 99), seen(1, 99, state=psutil.STATUS_TRACING_STOP)], 30) is None


@pytest.mark.parametrize(
    ("ranks", "behind", "words"),
    [
        # Fewer parts of the same step.
        (
            [seen(0, 40, parts=3, part=Part.GRADIENTS), seen(1, 40, parts=1, part=Part.FORWARD)],
            1,
            "rank 1 is behind, in the forward pass after step 10; the others are waiting for",
        ),
        # An earlier step.
        ([seen(0, 40, step=11), seen(1, 40, step=10, parts=9)], 1, "after step 10"),
        # A stopped process, wherever it is, and although another still evaluates.
        (
            [seen(0, 40, Activity.EVALUATING), seen(1, 40, state=psutil.STATUS_STOPPED)],
            1,
            "its process is stopped (state T",
        ),
        # The only one that computes.
        ([seen(0, 40, cpu=0.01), seen(1, 40, cpu=0.98)], 1, "it is computing"),
        ([seen(0, 40), seen(1, 40)], None, "no rank is behind the others"),
        (
            [seen(0, 40, parts=2), seen(1, 40, state=psutil.STATUS_DISK_SLEEP)],
            1,
            "a disk or a network file system",
        ),
    ],
)
def test_hang_detector_names_the_lagging_rank(
    ranks: list[RankObservation], behind: int | None, words: str
) -> None:
    stall = detect_stall(ranks, 30)
    assert stall is not None
    assert stall.behind == behind
    assert words in describe(stall)
    assert Stall.model_validate_json(stall.model_dump_json()) == stall


def test_hang_floor_is_configurable_and_optional_for_scripts() -> None:
    def floor(**recovery: Any) -> float | None:
        return hang_floor(validate_spec({"name": "a", "task": {"name": "digits"}, **recovery}))

    assert floor() == 30
    assert floor(recovery={"hang_seconds": 5}) == 5
    assert floor(recovery={"hang_seconds": 0}) is None
    own: dict[str, Any] = {"name": "a", "script": {"path": "/a.py"}}
    assert hang_floor(validate_spec(own)) is None
    assert hang_floor(validate_spec({**own, "recovery": {"hang_seconds": 60}})) == 60


def test_progress_page_shows_the_current_activity(tmp_path: Path) -> None:
    assert read(tmp_path, os.getpid()) is None
    handler = signal.getsignal(signal.SIGUSR2)
    progress = Progress(tmp_path)
    try:
        page = read(tmp_path, os.getpid())
        assert page == RankProgress(answers=handler is signal.SIG_DFL)
        progress.begin(4)
        progress.reading()
        first = read(tmp_path, os.getpid())
        assert first is not None
        assert (first.activity, first.step, first.mean_seconds) == (Activity.FIRST_STEP, 4, None)
        progress.step(5)
        progress.reading()
        assert _progress(tmp_path).activity is Activity.READING
        progress.read()
        progress.passed(0)
        between = _progress(tmp_path)
        assert (between.activity, between.parts, between.part) == (
            Activity.STEPPING,
            1,
            Part.FORWARD,
        )
        progress.step(6)
        assert _progress(tmp_path).mean_seconds is not None
        usual = progress.longest()
        assert usual is not None
        assert usual <= _progress(tmp_path).longest_seconds
        with progress.during(Activity.SAVING):
            assert _progress(tmp_path).activity is progress.activity is Activity.SAVING
            assert progress.longest() is None, "it is the first save"
        with progress.during(Activity.SAVING):
            known = progress.longest()
            assert known is not None
            assert known > 0
        assert _progress(tmp_path).activity is Activity.STEPPING
        assert newest_step(tmp_path) == 6
    finally:
        progress.close()


def _progress(folder: Path) -> RankProgress:
    progress = read(folder, os.getpid())
    assert progress is not None
    return progress


def test_hang_policy_ignores_time_the_shim_was_frozen(tmp_path: Path) -> None:
    progress = Progress(tmp_path)
    try:
        progress.begin(0)
        progress.step(1)
        watch = detector.HangDetector(tmp_path, 8.0)
        pids = {0: os.getpid()}
        assert watch.poll(100.0, pids) is None
        for now in (101.0, 5000.0, 9000.0):
            assert watch.poll(now, pids) is None
        looks = [watch.poll(9000.0 + second, pids) for second in range(1, 9)]
        assert looks[0] is None
        assert looks[-1] is not None
    finally:
        progress.close()


TRAINS = """
import os, sys, time
from pathlib import Path
from trainhall.training.link.progress_writer import Progress

def spin_for_ever():
    while True:
        pass

rank, mode = os.environ["RANK"], sys.argv[1]
folder = Path(os.environ["TRAINHALL_ATTEMPT_FOLDER"])
progress = Progress(folder)
progress.begin(0)
step = 0
while True:
    step += 1
    progress.passed(0)
    if rank == "1" and step == 20:
        print("there", flush=True)
        if mode == "spins":
            spin_for_ever()
    while rank == "0" and step == 20:
        progress.passed(2)
        time.sleep(600)
    time.sleep(0.001)
    progress.step(step)
"""


@pytest.mark.parametrize("mode", ["spins", "stopped"])
def test_supervisor_ends_hung_ranks_and_names_laggard(run: Any, tmp_path: Path, mode: str) -> None:
    one = run(script(tmp_path, TRAINS, mode, workers=2, hang_seconds=1, grace_seconds=0))
    one.wait_for_output(b"there", 1)
    if mode == "stopped":
        os.kill(one.status.ranks[1].pid, signal.SIGSTOP)
    status = one.wait()
    assert status.outcome is Outcome.FAILED
    failure = status.failure
    assert (failure.rank, failure.cause) == (1, Cause.HANG)
    stacks = (one.folder.rank(1) / "stacks.txt").read_text()
    if mode == "spins":
        assert "rank 1 is behind, in the forward pass after step 19" in failure.message
        assert "spin_for_ever" in stacks
        assert "spin_for_ever" in failure.log_tail
    else:
        assert "state T" in failure.message
        assert "its process is stopped" in stacks
    assert failure.step is not None
    assert failure.step >= 19
    # Those that waited for it tell their stacks too.
    assert "script.py" in (one.folder.rank(0) / "stacks.txt").read_text()
    assert "stacks of rank 0" in one.folder.stderr(0).read_text()


def test_hang_policy_ignores_a_silent_script(run: Any, tmp_path: Path) -> None:
    text = "import time; print('there', flush=True); time.sleep(2.5)"
    status = run(script(tmp_path, text, hang_seconds=1)).wait()
    assert status.outcome is Outcome.COMPLETED


def test_flight_record_is_requested_over_torchs_pipe(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    folder.rank(3).mkdir(parents=True)
    env = flight_record.environment(folder, 3)
    assert flight_record.save(folder, [3]) == []
    pipe = Path(f"{env['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}3.pipe")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    record = Path(f"{env['TORCH_FR_DUMP_TEMP_FILE']}3")
    record.write_bytes(b"what torch writes")
    assert flight_record.save(folder, [2, 3]) == [3]
    assert os.read(reader, 8)
    os.close(reader)
    assert flight_record.record_path(folder, 3) == record


@pytest.mark.processes
def test_stack_dumps_prefer_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "py-spy"
    program.write_text('#!/bin/sh\n[ "$3" = "77" ] && echo "Thread 1 of $3"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    folder = AttemptFolder(tmp_path / "attempt")
    for rank in range(2):
        folder.rank(rank).mkdir(parents=True)
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    stack_dumps.save(folder, {0: 77, 1: ended.pid}, set())
    assert "Thread 1 of 77" in (folder.rank(0) / "stacks.txt").read_text()
    assert "does not respond" in folder.stderr(1).read_text()


@pytest.mark.processes
def test_stack_dumps_do_without_a_broken_py_spy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/gone/python\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    folder = AttemptFolder(tmp_path / "attempt")
    folder.rank(0).mkdir(parents=True)
    stack_dumps.save(folder, {0: os.getpid()}, {0})
    assert "its process is stopped" in (folder.rank(0) / "stacks.txt").read_text()


def test_hang_limit_counts_first_step_only_when_compiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy host a first step took 39 s, the others 20 ms."""
    now = 0.0
    monkeypatch.setattr("trainhall.training.link.progress_writer.monotonic", lambda: now)
    progress = Progress(tmp_path)
    try:
        progress.begin(0)
        for number, seconds in enumerate((39.0, 0.02, 0.02), start=1):
            now += seconds
            progress.step(number)
        page = _progress(tmp_path)
    finally:
        progress.close()
    assert detector.limit_of(page, 3.0) == 3.0
    assert detector.limit_of(page, 3.0, compiles=True) == pytest.approx(78.0)
    spec: dict[str, Any] = {"name": "a", "task": {"name": "digits"}}
    assert not detector.may_compile(validate_spec(spec))
    assert detector.may_compile(validate_spec({**spec, "training": {"compile": True}}))


@pytest.mark.processes
def test_stack_dumps_are_those_of_their_moment(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    progress = Progress(tmp_path)
    try:
        for _ in range(2):
            text = stack_dumps.collect(folder, {0: os.getpid()}, set())[0]
            assert text.count("Current thread") == 1, text
    finally:
        progress.close()
