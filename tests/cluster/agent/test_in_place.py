"""Ranks that regroup in place: real processes under a real shim, which is given new launches."""

import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.regroup import Elastic, elastic
from support.waiting import eventually

from trainhall.training.control import Control
from trainhall.training.link import Command, replace_json

STEPS = 120
SPEC: dict[str, Any] = {
    "task": {"name": "digits", "params": {"hidden": [32], "dropout": 0.1}},
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


def with_changes(**training: Any) -> dict[str, Any]:
    return {**SPEC, "training": {**SPEC["training"], **training}}


def dying(**params: Any) -> dict[str, Any]:
    return {
        "task": {"name": "support.dying_task:DyingTask", "params": params},
        "training": {**SPEC["training"], "steps": 40, "optimizer": "sgd"},
    }


def weights(run: Elastic) -> tuple[str, str]:
    result = run.result()
    assert result["steps"] == run.launch.spec.training.steps
    return result["weights_sha256"], result["chain"]


def assert_all_is_told(run: Elastic, evaluated: Sequence[int] = ()) -> None:
    """No step is missing from what ranks have told of the job."""
    steps = set(range(1, run.result()["steps"] + 1))
    for name in ("loss", "gradient_norm", "chain_link", "chain_samples"):
        assert steps - run.job_wide(name) == set(), name
    assert set(evaluated) - run.job_wide("eval_loss") == set()


def test_four_workers_become_three_and_four_again_and_nothing_else_changes(start: Start) -> None:
    undisturbed = start(SPEC, 1)
    run = start(SPEC, 4)
    run.reach(10)
    before = run.pids()
    run.kill(1)
    status = run.wait_for_fallen(1)
    assert status.phase == "running"
    assert status.fallen[0].failure.signal == signal.SIGKILL

    run.regroup([0, 2, 3])
    run.reach(40)
    assert list(run.pids().values()) == [before[0], before[2], before[3]]

    run.regroup([0, 1, 2, 3])
    run.reach(60)
    after = run.pids()
    assert [after[0], after[2], after[3]] == [before[0], before[2], before[3]]
    assert after[1] not in before.values()

    assert weights(run) == weights(undisturbed)
    told = [note["message"] for note in run.events("note")]
    assert len(told) == 2
    assert "3 ranks went on as generation 2" in told[0]
    assert "rank 1 got the state of rank 0" in told[1]
    assert len(run.events("started")) == 1


def test_a_device_that_is_listed_again_while_its_process_leaves_gets_another(start: Start) -> None:
    run = start(with_changes(steps=60), 2)
    run.reach(5)
    before, leaves = run.pids(), psutil.Process(run.pids()[1])
    # The shim tells of a launch without the device, and is late to see what comes of it.
    run.process.send_signal(signal.SIGSTOP)
    without = run.next([0]).model_copy(update={"rendezvous": run.status.rendezvous})
    replace_json(run.folder.group(2), without)
    Control(run.folder.control).regroup(2)
    eventually("it has left", lambda: leaves.status() == psutil.STATUS_ZOMBIE)
    run.send([0, 1], 3)
    run.process.send_signal(signal.SIGCONT)
    assert run.result()["steps"] == 60
    after = run.pids()
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_ranks_that_nobody_regroups_leave_and_the_first_that_fell_is_to_blame(start: Start) -> None:
    run = start({**SPEC, "recovery": {"regroup_seconds": 0.5}}, 2)
    run.reach(5)
    run.kill(1)
    status = run.wait()
    assert status.outcome == "failed"
    assert status.failure is not None
    assert status.failure.rank == 1
    assert status.failure.signal == signal.SIGKILL


def test_a_rank_that_dies_between_two_exchanges_leaves_no_gap_in_the_chain(start: Start) -> None:
    """What was measured has been exchanged by then, and which samples were read has not."""
    spec = dying(by=1, at="gathering", before=6)
    undisturbed, run = start(spec, 1), start(spec, 2)
    run.reach(1)
    run.wait_for_fallen(1)
    run.regroup([0])
    assert weights(run) == weights(undisturbed)


def test_what_rank_0_did_not_come_to_write_the_others_tell(start: Start) -> None:
    """All have exchanged what they measured, so nobody tells it as numbers of the next group."""
    run = start(dying(by=0, at="writing", before=4), 2)
    run.reach(1)
    run.wait_for_fallen(0)
    run.regroup([1])
    assert_all_is_told(run)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whoever_dies_whenever_the_weights_are_the_same(start: Start, seed: int) -> None:
    """Within a step, an optimizer's step, a save, an evaluation, or a regrouping; rank 0 too; a
    generation may be skipped, and a shim told twice."""
    chance = random.Random(seed)
    spec = {**with_changes(steps=300, evaluate_every_steps=7), "checkpoint": {"every_steps": 5}}
    undisturbed, run = start(spec, 1), start(spec, 4)
    run.reach(5)
    devices = [0, 1, 2, 3]
    while run.step < 220:
        # A moment of no meaning: where in a step the signal meets a rank is left to it.
        run.reach(run.step + chance.randrange(1, 15))
        victim = chance.randrange(len(devices))
        run.kill(victim)
        run.wait_for_fallen(victim)
        again = len(devices) > 2 and chance.random() < 0.3
        run.regroup(devices, run.launch.generation + chance.choice([1, 1, 2]))
        if again:
            second = chance.randrange(len(devices))
            run.kill(second)
            run.wait_for_fallen(second)
            run.regroup(devices)
        if chance.random() < 0.5:
            other = chance.choice(devices)
            devices = sorted(set(devices) ^ {other}) if len(devices) > 2 else [0, 1, 2, 3]
            run.regroup(devices)
        run.reach(run.step + 2)
    assert weights(run) == weights(undisturbed)
    assert_all_is_told(run, evaluated=[*range(7, 301, 7), 300])


@pytest.mark.slow
@pytest.mark.parametrize("sync", [
    {"algorithm": "ring"}, {"algorithm": "ring", "compression": "topk", "ratio": 0.1},
    {"compression": "powersgd", "ratio": 0.1}, {"bucket_mb": 0.01},
])  # fmt: skip
def test_every_gradient_sync_goes_on_without_a_rank(start: Start, sync: dict[str, Any]) -> None:
    training = {**SPEC["training"], "reproducible": False, "global_batch_size": 48}
    training.pop("logical_shards")
    spec = {**SPEC, "training": training, "parallelism": {"gradient_sync": sync}}
    run = start(spec, 3)
    for rank, devices in ((1, [0, 2]), (0, [0, 2]), (1, [0]), (None, [0, 1, 2])):
        run.reach(run.step + 10)
        if rank is not None:
            run.kill(rank)
            run.wait_for_fallen(rank)
        run.regroup(devices)
    assert run.result()["steps"] == STEPS


@pytest.mark.slow
def test_a_rank_that_is_stopped_with_its_host_holds_up_nobody(start: Start) -> None:
    """No connection breaks: the others learn of it by the newer launch alone."""
    run = start(SPEC, 3)
    run.reach(10)
    stopped = run.rank(2).pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    run.regroup([0, 1])
    run.reach(run.step + 2)
    os.kill(stopped, signal.SIGKILL)
    eventually("it has left", lambda: not run.status.leaving)
    assert run.result()["steps"] == STEPS


@pytest.mark.slow
def test_ranks_that_regrouped_pause_and_stop_as_all_do(start: Start) -> None:
    for command, outcome in ((Command.PAUSE, "paused"), (Command.STOP, "stopped")):
        run = start(with_changes(steps=100_000), 3)
        run.reach(5)
        run.kill(0)
        run.wait_for_fallen(0)
        run.regroup([0, 1])
        run.reach(run.step + 2)
        run.tell(command)
        assert run.wait().outcome == outcome
