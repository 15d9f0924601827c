"""Cost of a reproducible step against a plain DDP step, in the same two processes.

    python -m benchmarks.engine.reproducible [--rounds 12] [--steps 8]

Two ranks over Gloo, as many as there are logical shards, train a small GPT in turn with
`training.reproducible` and without, round after round: both through Trainhall's loop, with
clipping, AdamW, one thread a rank and every metric. The cost is the median over rounds of the
quotient of times in a round, whose order alternates.
"""

import argparse
import json
import os
import signal
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch._dynamo  # a forked rank would import it with its first optimizer
import torch.distributed as dist

from benchmarks.engine.step_cost import WORLD_SIZE, fork, pin, trainhall_loop
from benchmarks.report import Figure, report
from trainhall.cluster.agent.shim import rendezvous
from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.training.link.control import Control
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.process import rendezvous_store
from trainhall.training.spec import JobSpec
from trainhall.training.spec.parse import validate_spec

GOAL_COST = 1.15
WARM_UP_STEPS = 4


@dataclass(frozen=True)
class Round:
    """Seconds a step, means of a round."""

    plain: float
    reproducible: float
    plain_cpu: float
    """Time on the processor, all threads of rank 0 together: it waits for nobody."""
    reproducible_cpu: float


def spec(*, reproducible: bool) -> JobSpec:
    return validate_spec(
        {
            "name": "reproducible" if reproducible else "plain",
            "task": {"name": "language_model", "params": {"size": "mini"}},
            "resources": {"workers": WORLD_SIZE, "device": "cpu"},
            "training": {
                "steps": 10**9,
                "global_batch_size": 8 * WORLD_SIZE,
                "gradient_clip": 1.0,
                "reproducible": reproducible,
                "logical_shards": WORLD_SIZE,
                "data_workers": 0,
            },
        }
    )


def attempt(path: Path) -> AttemptFolder:
    folder = AttemptFolder(path)
    (path / "checkpoints").mkdir(parents=True)
    for rank in range(WORLD_SIZE):
        folder.rank(rank).mkdir(parents=True)
    Control(folder.control, create=True)
    return folder


def rank_main(rank: int, port: int, folders: list[AttemptFolder], rounds: int, steps: int) -> None:
    """What a rank does; rank 0 leaves the rounds beside the folders."""
    torch.set_num_threads(1)
    pin(rank)
    environment = RankEnvironment(
        rank=rank,
        local_rank=rank,
        world_size=WORLD_SIZE,
        local_world_size=WORLD_SIZE,
        master_addr="127.0.0.1",
        master_port=port,
    )
    with process_group.joined(environment, device=torch.device("cpu"), namespace="bench"):
        loops = [
            trainhall_loop(spec(reproducible=on), folder, environment)
            for on, folder in zip((False, True), folders, strict=True)
        ]
        for loop in loops:
            loop(WARM_UP_STEPS)
        measured = []
        for number in range(rounds):
            seconds, on_cpu = [0.0, 0.0], [0.0, 0.0]
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                dist.barrier()
                begun, cpu_begun = time.perf_counter(), time.process_time()
                loops[which](steps)
                seconds[which] = (time.perf_counter() - begun) / steps
                on_cpu[which] = (time.process_time() - cpu_begun) / steps
            measured.append(Round(*seconds, *on_cpu))
    if rank == 0:
        text = json.dumps([asdict(round_) for round_ in measured])
        (folders[0].path.parent / "rounds.json").write_text(text)


def measure(rounds: int, steps: int) -> list[Round]:
    with tempfile.TemporaryDirectory(prefix="trainhall-bench-") as name:
        root = Path(name)
        folders = [attempt(root / kind) for kind in ("plain", "reproducible")]
        with rendezvous.listen("127.0.0.1")[0] as listener:
            store = fork(lambda: rendezvous_store.hold("127.0.0.1", listener.detach()))
            port = listener.getsockname()[1]
        try:
            ranks = [
                fork(partial(rank_main, r, port, folders, rounds, steps)) for r in range(WORLD_SIZE)
            ]
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
        finally:
            os.kill(store, signal.SIGKILL)
            os.waitpid(store, 0)
        if any(codes):
            raise SystemExit(f"a rank failed: exit codes {codes}")
        return [Round(**means) for means in json.loads((root / "rounds.json").read_text())]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=8, help="of each kind in a round")
    options = parser.parse_args()
    rounds = measure(options.rounds, options.steps)
    print(f"ms a step, means of {options.steps} steps")
    print("  round     plain   reproducible   quotient")
    for number, r in enumerate(rounds, start=1):
        numbers = (r.plain * 1e3, r.reproducible * 1e3, r.reproducible / r.plain)
        print("  {:5}{:10.1f}{:15.1f}{:11.3f}".format(number, *numbers))
    report(
        Figure("plain step", statistics.median(r.plain for r in rounds) * 1e3, "ms"),
        Figure("reproducible step", statistics.median(r.reproducible for r in rounds) * 1e3, "ms"),
        Figure(
            "the same in time on the processor",
            statistics.median(r.reproducible_cpu / r.plain_cpu for r in rounds),
            "times",
        ),
        Figure(
            "a reproducible step beside a plain one",
            statistics.median(r.reproducible / r.plain for r in rounds),
            "times",
            at_most=GOAL_COST,
        ),
    )


if __name__ == "__main__":
    main()
