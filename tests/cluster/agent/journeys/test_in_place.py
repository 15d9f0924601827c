"""Ranks that regroup in place: real processes under a real shim, which is given new launches."""

import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.cluster.regroup import Elastic, elastic
from support.holds import STEPS, Gate, free_task
from support.waiting import eventually

from trainhall.training.checkpoint.format.names import scan
from trainhall.training.link.control import Control
from trainhall.training.link.failure import Cause
from trainhall.training.link.folder import replace_json
from trainhall.training.link.launch import Command
from trainhall.training.link.status import EXIT_STOPPED, EXIT_STUCK

TASK: dict[str, Any] = {"hidden": [32], "dropout": 0.1}
SPEC: dict[str, Any] = {
    "task": free_task("digits", **TASK),
    "training": {
        "steps": STEPS,
        "global_batch_size": 64,
        "optimizer": "adamw",
        "gradient_clip": 1.0,
        "gradient_accumulation": 2,
        "reproducible": True,
        "logical_shards": 4,
    },
}
Start = Callable[[dict[str, Any], int], Elastic]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with elastic(tmp_path) as begin:
        yield begin


def held(gate: Gate) -> dict[str, Any]:
    return {**SPEC, "task": gate.task("digits", **TASK)}


def with_changes(**training: Any) -> dict[str, Any]:
    return {**SPEC, "training": {**SPEC["training"], **training}}


def dying(steps: int = 40, **params: Any) -> dict[str, Any]:
    return {
        "task": {"name": "support.tasks.dying:DyingTask", "params": params},
        "training": {**SPEC["training"], "steps": steps, "optimizer": "sgd"},
    }


def weights(run: Elastic) -> tuple[str, str]:
    result = run.result()
    assert result["steps"] == run.launch.spec.training.steps
    return result["weights_sha256"], result["chain"]


def assert_all_is_reported(run: Elastic, evaluated: Sequence[int] = ()) -> None:
    """No step is missing from what ranks have told of the job."""
    steps = set(range(1, run.result()["steps"] + 1))
    for name in ("loss", "gradient_norm", "chain_link", "chain_samples"):
        assert steps - run.job_wide(name).keys() == set(), name
    assert set(evaluated) - run.job_wide("eval_loss").keys() == set()


@pytest.mark.processes
def test_regroup_waits_until_the_launch_fits(start: Start, gate: Gate) -> None:
    """Until then the ranks are as they were, and the agent tells it again and again."""
    run = start(held(gate), 3)
    run.reach(10)
    before = run.pids()
    run.kill(1)
    run.wait_for_failed_ranks(1)
    group = run.folder.group(2)
    group.mkdir()  # no file can be written in its place
    run.send([0, 2])
    run.kill(2)
    run.wait_for_failed_ranks(1, 2)  # which it sees no earlier than the launch
    group.rmdir()
    run.regroup([0], generation=2)
    assert run.pids() == {0: before[0]}
    gate.open()
    assert_all_is_reported(run)


@pytest.mark.processes
def test_regroup_from_four_to_three_and_back(start: Start, gate: Gate) -> None:
    undisturbed = start(SPEC, 1)
    run = start(held(gate), 4)
    run.reach(10)
    before = run.pids()
    run.kill(1)
    status = run.wait_for_failed_ranks(1)
    assert status.phase == "running"
    assert status.failed_ranks[0].failure.signal == signal.SIGKILL

    run.regroup([0, 2, 3])
    run.reach(run.step + 5)
    assert list(run.pids().values()) == [before[0], before[2], before[3]]

    run.regroup([0, 1, 2, 3])
    run.reach(run.step + 5)
    after = run.pids()
    assert [after[0], after[2], after[3]] == [before[0], before[2], before[3]]
    assert after[1] not in before.values()

    gate.open()
    assert weights(run) == weights(undisturbed)
    notes = [note["message"] for note in run.events("note")]
    assert len(notes) == 2
    assert "3 ranks resumed as generation 2" in notes[0]
    assert "rank 1 got the state of rank 0" in notes[1]
    assert len(run.events("started")) == 1


@pytest.mark.processes
@pytest.mark.parametrize("is_reaped", [False, True])
def test_regroup_restarts_device_of_leaving_process(
    start: Start, gate: Gate, is_reaped: bool
) -> None:
    """The launch with the device comes before or after the end of its process is noticed."""
    run = start(held(gate), 2)
    run.reach(5)
    before, leaves = run.pids(), psutil.Process(run.pids()[1])
    # The shim tells of a launch without the device, and is late to see what comes of it.
    run.process.send_signal(signal.SIGSTOP)
    without = run.next([0]).model_copy(update={"rendezvous": run.status.rendezvous})
    replace_json(run.folder.group(2), without)
    Control(run.folder.control).regroup(2)
    eventually("it has left", lambda: leaves.status() == psutil.STATUS_ZOMBIE)
    if is_reaped:
        run.process.send_signal(signal.SIGCONT)
        eventually("its end is noticed", lambda: run.rank(1).exit_code == EXIT_STOPPED)
        assert run.pids() == before
        run.send([0, 1], 3)
    else:
        run.send([0, 1], 3)
        run.process.send_signal(signal.SIGCONT)
    eventually("another has begun", lambda: run.pids().get(1) not in (None, before[1]))
    run.reach(run.step + 5)
    gate.open()
    assert run.result()["steps"] == STEPS
    assert run.pids()[0] == before[0]


@pytest.mark.processes
def test_late_rank_ends_with_the_completed_job(start: Start, gate: Gate) -> None:
    run = start(held(gate), 1)
    run.reach(5)
    completes = psutil.Process(run.pids()[0])
    # It takes up the launch only when the rank that was to go on has no more to do.
    run.process.send_signal(signal.SIGSTOP)
    run.send([0, 1])
    gate.open()
    eventually("it has completed", lambda: completes.status() == psutil.STATUS_ZOMBIE)
    run.process.send_signal(signal.SIGCONT)
    assert run.result()["steps"] == STEPS
    # Unless the shim saw the end first, and began nothing.
    late = [state.exit_code for state in run.status.ranks if state.rank == 1]
    assert late in ([EXIT_STOPPED], [])


@pytest.mark.processes
def test_write_to_lost_peer_kills_no_process(start: Start, gate: Gate) -> None:
    """Gloo writes to sockets as to files. What is forked has to be like an interpreter that was
    started, which ignores the signal."""
    run = start(held(gate), 2)
    run.reach(5)
    below = psutil.Process(run.process.pid).children()
    assert len(below) == 3
    for process in below:
        process.send_signal(signal.SIGPIPE)
        process.send_signal(signal.SIGXFSZ)
    gate.open()
    assert run.result()["steps"] == STEPS
    assert run.status.generation == 1


@pytest.mark.processes
def test_ranks_without_regroup_leave_and_blame_first_failure(start: Start, gate: Gate) -> None:
    run = start({**held(gate), "recovery": {"regroup_seconds": 0.5}}, 2)
    run.reach(5)
    run.kill(1)
    status = run.wait()
    assert status.outcome == "failed"
    assert status.failure is not None
    assert status.failure.rank == 1
    assert status.failure.signal == signal.SIGKILL


@pytest.mark.processes
def test_hash_chain_survives_death_between_exchanges(start: Start) -> None:
    """What was measured has been exchanged by then, and which samples were read has not."""
    spec = dying(by=1, at="gathering", before=6)
    undisturbed, run = start(spec, 1), start(spec, 2)
    run.reach(1)
    run.wait_for_failed_ranks(1)
    run.regroup([0])
    assert weights(run) == weights(undisturbed)


@pytest.mark.processes
def test_hash_chain_survives_death_of_source_rank(start: Start) -> None:
    """Whoever has handed in its own numbers by then has those of the job from the source."""
    spec = dying(by=2, at="computing", before=35)
    spec["task"]["name"] = "support.tasks.dying:TwiceDyingTask"
    undisturbed, run = start(dying(by=9, at="computing", before=1), 1), start(spec, 3)
    run.reach(1)
    run.wait_for_failed_ranks(2)
    run.regroup([0, 1, 2])
    run.wait_for_failed_ranks(0)
    run.regroup([0, 1, 2])
    assert weights(run) == weights(undisturbed)
    assert_all_is_reported(run)


@pytest.mark.processes
def test_save_completes_without_a_rank_that_died(start: Start) -> None:
    """The only one of the job: that of its last step."""
    run = start(dying(by=1, at="saving", before=1), 2)
    run.reach(1)
    run.wait_for_failed_ranks(1)
    run.regroup([0])
    steps = run.result()["steps"]
    assert [found.name.step for found in scan(run.checkpoints)] == [steps]


@pytest.mark.processes
def test_unsettled_step_is_not_repeated_after_regroup(start: Start) -> None:
    """It has been told already, and would count as done again."""
    spec = dying(by=1, at="saving", before=1)
    spec["checkpoint"] = {"every_steps": 7}
    run = start(spec, 2)
    run.reach(1)
    run.wait_for_failed_ranks(1)
    run.regroup([0])
    run.result()
    assert [(event["generation"], event["step"]) for event in run.events("stepped")] == [
        (1, 1),
        (2, 8),
    ]


@pytest.mark.processes
def test_survivors_report_what_rank_0_left_unwritten(start: Start) -> None:
    """All have exchanged what they measured, so nobody tells it as numbers of the next group."""
    run = start(dying(by=0, at="writing", before=4), 2)
    run.reach(1)
    run.wait_for_failed_ranks(0)
    run.regroup([1])
    assert_all_is_reported(run)


@pytest.mark.processes
def test_survivor_stuck_in_its_group_is_ended(start: Start) -> None:
    """The others wait for it to come to the next one."""
    spec = dying(steps=10_000, by=0, at="leaving", before=1)
    run = start({**spec, "recovery": {"regroup_seconds": 1, "hang_seconds": 1}}, 3)
    run.reach(5)
    run.kill(1)
    run.wait_for_failed_ranks(1)
    run.regroup([0, 1, 2])
    failed = run.wait_for_failed_ranks(0).failed_ranks[0]
    assert failed.generation == 2
    assert failed.failure.cause is Cause.HANG
    assert "rank 0 is behind, leaving its group" in failed.failure.message
    run.regroup([0, 1, 2])
    run.reach(run.step + 20)


@pytest.mark.slow
def test_survivor_stuck_in_its_step_is_replaced(start: Start, tmp_path: Path) -> None:
    stuck = tmp_path / "stuck"
    spec = dying(steps=10_000, by=0, at="stepping", before=60, mark=str(stuck))
    run = start({**spec, "recovery": {"hang_seconds": 0}}, 3)
    eventually("it is stuck", stuck.exists)
    run.kill(1)
    run.wait_for_failed_ranks(1)
    run.regroup([0, 1, 2])
    failure = run.wait_for_failed_ranks(0).failed_ranks[0].failure
    assert failure.exit_code == EXIT_STUCK
    assert "a step does not end although its process group was aborted" in failure.message
    run.regroup([0, 1, 2])
    run.reach(run.step + 20)


SYNCS: dict[str, tuple[str, dict[str, Any]]] = {
    "native": ("all_reduce", {}),
    "ring": ("send", {"algorithm": "ring"}),
    "bf16": ("all_reduce", {"compression": "bf16"}),
    "reproducible": ("all_to_all_single", {}),
}
"""What each way to combine gradients sends them with."""


@pytest.mark.slow
@pytest.mark.parametrize("sync", SYNCS)
def test_regroup_loses_no_step_with_gloos_message(start: Start, tmp_path: Path, sync: str) -> None:
    """Two ranks, so nobody but the one that waits for the message has the steps."""
    loses, gradient_sync = SYNCS[sync]
    mark = tmp_path / "loses"
    training = {**SPEC["training"], "steps": 2000, "optimizer": "sgd"}
    if sync != "reproducible":
        del training["reproducible"], training["logical_shards"]

    def spec(by: int) -> dict[str, Any]:
        # Two micro-batches a step of each of two shards, or else of the rank's samples.
        before = 10 * (4 if sync == "reproducible" else 2)
        return {
            **dying(by=by, at="losing", before=before, loses=loses, mark=str(mark)),
            "training": training,
            "parallelism": {"gradient_sync": gradient_sync},
        }

    no_rank = 9
    undisturbed, run = start(spec(no_rank), 2), start(spec(0), 2)
    eventually("a message is lost", mark.exists)
    before = run.pids()
    run.kill(1)
    run.wait_for_failed_ranks(1)
    run.regroup([0, 1])
    run.reach(20)
    assert run.pids()[0] == before[0]
    assert len(run.events("started")) == 1
    (note_text,) = (note["message"] for note in run.events("note"))
    assert note_text.startswith(
        "2 ranks resumed as generation 2 after step 9; rank 1 got the state"
    )
    # What still waits holds up no later regrouping either.
    run.kill(1)
    run.wait_for_failed_ranks(1)
    run.regroup([0, 1])
    run.reach(run.step + 2)
    assert run.pids()[0] == before[0]
    assert run.result()["weights_sha256"] == undisturbed.result()["weights_sha256"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_weights_are_equal_whichever_rank_dies(start: Start, seed: int) -> None:
    """Within a step, an optimizer's step, a save, an evaluation, or a regrouping; rank 0 too; a
    generation may be skipped, and a shim told twice. So many steps need no gate, which would make
    each one slower than the one before: most of them are left when the last rank is killed."""
    chance = random.Random(seed)
    steps = 600
    changed = with_changes(steps=steps, evaluate_every_steps=7)
    spec = {**changed, "checkpoint": {"every_steps": 5}}
    undisturbed, run = start(spec, 1), start(spec, 4)
    run.reach(5)
    devices = [0, 1, 2, 3]
    while run.step < 220:
        # A moment of no meaning: where in a step the signal meets a rank is left to it.
        run.reach(run.step + chance.randrange(1, 15))
        victim = chance.randrange(len(devices))
        run.kill(victim)
        run.wait_for_failed_ranks(victim)
        again = len(devices) > 2 and chance.random() < 0.3
        run.regroup(devices, run.launch.generation + chance.choice([1, 1, 2]))
        if again:
            second = chance.randrange(len(devices))
            run.kill(second)
            run.wait_for_failed_ranks(second)
            run.regroup(devices)
        if chance.random() < 0.5:
            other = chance.choice(devices)
            devices = sorted(set(devices) ^ {other}) if len(devices) > 2 else [0, 1, 2, 3]
            run.regroup(devices)
        run.reach(run.step + 2)
    assert weights(run) == weights(undisturbed)
    assert_all_is_reported(run, evaluated=[*range(7, steps + 1, 7), steps])


@pytest.mark.slow
@pytest.mark.parametrize(("sync", "name", "tolerance"), [
    # Of a step that is handed in, the loss is the mean over the ranks that are left.
    ({"algorithm": "ring"}, "gradient_norm", 1e-3),
    ({"bucket_mb": 0.01}, "gradient_norm", 1e-3),
    # What a lost rank had not sent is lost with it.
    ({"algorithm": "ring", "compression": "topk", "ratio": 0.1}, "loss", 0.1),
    ({"compression": "powersgd", "ratio": 0.1}, "loss", 0.1),
])  # fmt: skip
def test_every_gradient_sync_continues_without_a_rank(
    start: Start, gate: Gate, sync: dict[str, Any], name: str, tolerance: float
) -> None:
    training = {**SPEC["training"], "reproducible": False, "global_batch_size": 48}
    training.pop("logical_shards")
    # When rank 0 dies the others save before their next step, with a newcomer among them.
    spec = {
        "task": gate.task("digits", hidden=[32]),
        "training": training,
        "parallelism": {"gradient_sync": sync},
        "checkpoint": {"every_steps": 5},
    }
    undisturbed = start({**spec, "task": free_task("digits", hidden=[32])}, 3)
    run = start(spec, 3)
    for rank, devices in ((1, [0, 2]), (0, [0, 2]), (1, [0]), (None, [0, 1, 2])):
        run.reach(run.step + 10)
        if rank is not None:
            run.kill(rank)
            run.wait_for_failed_ranks(rank)
        run.regroup(devices)
    gate.open()
    assert run.result()["steps"] == undisturbed.result()["steps"] == STEPS
    numbers, expected = run.job_wide(name), undisturbed.job_wide(name)
    assert numbers == pytest.approx(expected, rel=tolerance)
    losses = undisturbed.job_wide("loss")
    assert losses[STEPS] < 0.9 * losses[1], "it learns"


@pytest.mark.slow
def test_rank_stopped_with_its_host_blocks_no_other(start: Start, gate: Gate) -> None:
    """No connection breaks: the others learn of it by the newer launch alone."""
    run = start(held(gate), 3)
    run.reach(10)
    stopped = run.rank(2).pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    run.regroup([0, 1])
    run.reach(run.step + 2)
    os.kill(stopped, signal.SIGKILL)
    eventually("it has left", lambda: not run.status.leaving)
    gate.open()
    assert run.result()["steps"] == STEPS


@pytest.mark.slow
def test_regrouped_ranks_pause_and_stop(start: Start) -> None:
    for command, outcome in ((Command.PAUSE, "paused"), (Command.STOP, "stopped")):
        run = start(with_changes(steps=100_000), 3)
        run.reach(5)
        run.kill(0)
        run.wait_for_failed_ranks(0)
        run.regroup([0, 1])
        run.reach(run.step + 2)
        run.send_command(command)
        assert run.wait().outcome == outcome
