"""Waiting for other ranks ends when their group is broken off, whatever Gloo does."""

import ast
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from support.cluster.attempts import RankServer
from support.groups import breakable as breakable_ranks
from support.groups.gloo import gloo_ranks
from support.waiting import eventually

from trainhall.distributed import breakable
from trainhall.distributed.breakable import GroupBrokenError

ROOT = Path(__file__).parents[2]
Ends = tuple[Any, Any]
"""Two `ProcessGroupGloo`; their stub lacks the collectives."""

_WAITING = {
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_single", "all_reduce",
    "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather", "recv",
    "reduce", "reduce_scatter_single", "scatter", "send",
}  # fmt: skip
"""Functions of `torch.distributed` that return when other ranks have done their part."""
_ELSEWHERE = {
    "distributed/bench": "a measurement of its own",
    "distributed/probe_native.py": "GPUs, whose collectives can be aborted",
    "parallelism/messages.py": "parameter servers",
    "parallelism/parameter_server.py": "parameter servers",
    "parallelism/parts.py": "models that are divided",
    "parallelism/pipelining/pipeline.py": "pipelines",
    "parallelism/pipelining/stages.py": "pipelines",
    "training/optim/precision.py": "models that are divided",
    "training/sdk": "scripts",
}
"""Where nothing runs that regroups in place."""


@pytest.fixture
def ends() -> Iterator[Ends]:
    first, second = gloo_ranks(2, timedelta(seconds=60))
    breakable.begin()
    yield first, second
    breakable.begin()


def in_a_thread(work: Callable[[], None]) -> Future[None]:
    future: Future[None] = Future()

    def run() -> None:
        try:
            work()
            future.set_result(None)
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def test_endless_collective_ends_with_its_group(ends: Ends) -> None:
    first, second = ends
    one, other = torch.ones(2), torch.ones(2)
    work = first.allreduce([one])
    waits = in_a_thread(lambda: breakable.wait(work))
    with pytest.raises(TimeoutError):
        waits.result(2 * breakable.LOOK_SECONDS)
    breakable.break_off()
    breakable.begin()  # at once: this process may be in its next group before the thread looks up
    with pytest.raises(GroupBrokenError):
        waits.result(30)
    # What comes of it then disturbs nobody.
    second.allreduce([other]).wait()
    breakable.wait(work)
    assert one.tolist() == other.tolist() == [2, 2]


def test_collective_that_takes_long_is_waited_for(ends: Ends) -> None:
    first, second = ends
    one = torch.ones(2)
    work = first.allreduce([one])
    waits = in_a_thread(lambda: breakable.wait(work))
    with pytest.raises(TimeoutError):
        waits.result(3 * breakable.LOOK_SECONDS)
    second.allreduce([torch.ones(2)]).wait()
    waits.result(30)
    assert one.tolist() == [2, 2]


def test_failed_collective_reports_the_cause(ends: Ends) -> None:
    first, _ = ends
    work = first.allreduce([torch.ones(2)])
    waits = in_a_thread(lambda: breakable.wait(work))
    with pytest.raises(RuntimeError, match="Timed out"):
        first.recv([torch.empty(1)], 1, 7).wait(timedelta(milliseconds=1))
    eventually("it has failed", work.is_completed)
    with pytest.raises(RuntimeError, match="pair closure"):
        waits.result(30)


def test_broadcast_handles_any_size(ranks: RankServer, tmp_path: Path) -> None:
    assert ranks.call("support.groups.breakable:objects", 3, tmp_path) == [0, 0, 0]
    wanted = [breakable_ranks.value(rank) for rank in range(3)]
    for rank in range(3):
        everyones, seconds, tensors = torch.load(tmp_path / f"{rank}.pt")
        assert (everyones, seconds) == (wanted, wanted[1])
        for found, expected in zip(tensors, breakable_ranks.some_tensors(1), strict=True):
            assert torch.equal(found, expected)


def test_regrouping_jobs_wait_only_breakably() -> None:
    found = []
    for folder in ("distributed", "parallelism", "training"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if not any(name.startswith(prefix) for prefix in _ELSEWHERE):
                calls = (
                    n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)
                )
                found += [f"{name}:{call.lineno}" for call in calls if _waits(call)]
    assert found == [], "use trainhall.distributed.breakable"


def _waits(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="dist"), attr=attr) if attr in _WAITING:
            options: dict[Any, Any] = {k.arg: k.value for k in call.keywords}
            match options.get("async_op"):
                case ast.Constant(value=True):
                    return False
            return True
    return False
