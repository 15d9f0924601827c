"""Time that Trainhall adds to a training step, against the same loop written by hand.

    python -m benchmarks.engine.step_cost [--rounds 200] [--steps 50] [--slow-rounds 6]

Two ranks over Gloo run both loops on the same job in turn, round after round, in the same
processes: the same model, batches, optimizer, threads and options of DistributedDataParallel, and
both read data in memory by indices. The bare loop computes what one needs to train and no more;
Trainhall's also measures and writes all metrics of every step, exchanges them and listens for
commands. Every round gives each loop's mean time of a step, and the figures are means over rounds
without the tenth that is lowest and the tenth that is highest: a median would leave out what ranks
exchange between steps, which many short rounds have none of.

How quiet the machine was shows in three figures: the spread of what was added between rounds, what
was added by the quickest rounds of both, and what was added in time on the processor, which waits
for nobody.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import torch._dynamo  # a forked rank would import it with its first optimizer
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.report import Figure, report
from trainhall.cluster.agent.shim import rendezvous
from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.training.elastic.loop import ElasticLoop
from trainhall.training.elastic.membership import Membership
from trainhall.training.link.control import Control
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import CheckpointPlan, Launch, RankSlot
from trainhall.training.link.spool import EventSpool, MetricSpool
from trainhall.training.process import rendezvous_store
from trainhall.training.process.rank_context import RankContext
from trainhall.training.spec import JobSpec
from trainhall.training.spec.parse import validate_spec
from trainhall.training.tasks import build_task
from trainhall.training.tasks.base import Task, gives_batches

WORLD_SIZE = 2
BATCH = 64
WARM_UP_STEPS = 100
SLOW_STEP_SECONDS = 0.02
GOAL_MICROSECONDS = 100
GOAL_SPEED = 0.97

Steps = Callable[[int], None]


@dataclass(frozen=True)
class Round:
    """Means of one round's steps, in seconds."""

    bare: float
    trainhall: float
    bare_cpu: float
    """Time on the processor, all threads of rank 0 together."""
    trainhall_cpu: float

    @property
    def added(self) -> float:
        return self.trainhall - self.bare


@dataclass(frozen=True)
class Case:
    """One job that both loops train."""

    name: str
    task: dict[str, object]
    rounds: int
    steps: int

    def spec(self) -> JobSpec:
        return validate_spec(
            {
                "name": self.name,
                "task": self.task,
                "resources": {"workers": WORLD_SIZE, "device": "cpu"},
                "training": {"steps": 10**9, "global_batch_size": BATCH, "optimizer": "adamw"},
            }
        )


def bare_loop(spec: JobSpec, task: Task, rank: int) -> Steps:
    """The loop that one writes by hand, as a function that runs so many steps of it."""
    model = task.build_model()
    wrapped = DistributedDataParallel(
        model,
        bucket_cap_mb=spec.parallelism.gradient_sync.bucket_mb,
        gradient_as_bucket_view=True,
    )
    training = spec.training
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=training.learning_rate,
        weight_decay=training.weight_decay,
        fused=True,
    )
    data = task.train_data
    assert gives_batches(data)
    batches = bare_batches(len(data), rank)
    loss_of = bare_loss(spec)
    read = data.batch

    def run(steps: int) -> None:
        for _ in range(steps):
            inputs, targets = read(next(batches))
            optimizer.zero_grad()
            loss_of(wrapped, inputs, targets).backward()
            optimizer.step()

    return run


def bare_batches(size: int, rank: int) -> Iterator[Tensor]:
    """This rank's half of each batch, epoch after epoch in another order."""
    generator = torch.Generator().manual_seed(0)
    share = BATCH // WORLD_SIZE
    while True:
        order = torch.randperm(size, generator=generator)
        for start in range(0, size - BATCH + 1, BATCH):
            yield order[start + rank * share : start + (rank + 1) * share]


def bare_loss(spec: JobSpec) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    assert spec.task is not None
    if spec.task.name == "digits":
        return lambda model, images, labels: nn.functional.cross_entropy(model(images), labels)

    def slow(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        time.sleep(SLOW_STEP_SECONDS)
        return nn.functional.mse_loss(model(inputs), targets)

    return slow


def trainhall_loop(spec: JobSpec, folder: AttemptFolder, environment: RankEnvironment) -> Steps:
    """Trainhall's loop of such a job, which regroups in place, for so many steps of it."""
    launch = Launch(
        job_id="bench",
        attempt=1,
        generation=1,
        spec=spec,
        world_size=WORLD_SIZE,
        node_rank=0,
        num_nodes=1,
        ranks=[
            RankSlot(rank=r, local_rank=r, device_kind="cpu", device_index=r)
            for r in range(WORLD_SIZE)
        ],
        checkpoint=CheckpointPlan(folder=str(folder.path / "checkpoints"), upload=False),
    )
    rank = environment.rank
    device = torch.device("cpu")
    spools = EventSpool(folder.events(rank), rank), MetricSpool(folder.metrics(rank))
    membership = Membership(launch, launch.ranks[rank], folder, device)
    loop = ElasticLoop(RankContext(environment, launch, folder, device, *spools), membership)
    loop.resume()
    loop.progress.begin(0)

    def run(steps: int) -> None:
        for _ in range(steps):
            loop.train_step()
            assert loop.settle() is None

    return run


def compare(case: Case, folder: AttemptFolder, environment: RankEnvironment) -> list[Round]:
    """Both loops in turn; the order within a round alternates too."""
    spec = case.spec()
    loops = [
        bare_loop(spec, build_task(spec), environment.rank),
        trainhall_loop(spec, folder, environment),
    ]
    for loop in loops:
        loop(min(case.steps, WARM_UP_STEPS))
    rounds = []
    for number in range(case.rounds):
        wall, cpu = [0.0, 0.0], [0.0, 0.0]
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            dist.barrier()
            begun, cpu_begun = time.perf_counter(), time.process_time()
            loops[which](case.steps)
            wall[which] = (time.perf_counter() - begun) / case.steps
            cpu[which] = (time.process_time() - cpu_begun) / case.steps
        rounds.append(Round(*wall, *cpu))
    return rounds


def rank_main(case: Case, rank: int, port: int, folder: AttemptFolder) -> None:
    """What a rank does; rank 0 leaves the rounds in the folder."""
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
    folder.rank(rank).mkdir(parents=True)
    with process_group.joined(environment, device=torch.device("cpu"), namespace=case.name):
        rounds = compare(case, folder, environment)
    if rank == 0:
        (folder.path / "rounds.json").write_text(json.dumps([asdict(round_) for round_ in rounds]))


def pin(rank: int) -> None:
    """One core for each rank, so that the scheduler moves neither, where there are enough."""
    if sys.platform == "linux":
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) >= WORLD_SIZE:
            os.sched_setaffinity(0, {cores[rank]})


def fork(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def measure(case: Case) -> list[Round]:
    """Run a case in forked ranks, beside a rendezvous store of their own."""
    with tempfile.TemporaryDirectory(prefix="trainhall-bench-") as name:
        folder = AttemptFolder(Path(name))
        (folder.path / "checkpoints").mkdir()
        Control(folder.control, create=True)
        with rendezvous.listen("127.0.0.1")[0] as listener:
            store = fork(lambda: rendezvous_store.hold("127.0.0.1", listener.detach()))
            port = listener.getsockname()[1]
        try:
            ranks = [fork(partial(rank_main, case, r, port, folder)) for r in range(WORLD_SIZE)]
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
        finally:
            os.kill(store, signal.SIGKILL)
            os.waitpid(store, 0)
        if any(codes):
            raise SystemExit(f"a rank failed: exit codes {codes}")
        return [Round(**means) for means in json.loads((folder.path / "rounds.json").read_text())]


def show(case: Case, rounds: list[Round]) -> None:
    print(f"{case.name}: µs a step, means of {case.steps} steps")
    print("  round      bare   trainhall     added   added on the processor")
    for number, r in enumerate(rounds, start=1):
        cpu = r.trainhall_cpu - r.bare_cpu
        numbers = (r.bare * 1e6, r.trainhall * 1e6, r.added * 1e6, cpu * 1e6)
        print("  {:5}{:10.1f}{:12.1f}{:10.1f}{:25.1f}".format(number, *numbers))


def trimmed_mean(values: Iterable[float]) -> float:
    """The mean without the tenth that is lowest and the tenth that is highest."""
    ordered = sorted(values)
    cut = len(ordered) // 10
    return statistics.fmean(ordered[cut : len(ordered) - cut])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--steps", type=int, default=50, help="of each loop in a round")
    parser.add_argument("--slow-rounds", type=int, default=6)
    options = parser.parse_args()

    digits = Case("digits", {"name": "digits"}, options.rounds, options.steps)
    fast = measure(digits)
    show(digits, fast)
    synthetic: dict[str, object] = {
        "name": "synthetic",
        "params": {"step_seconds": SLOW_STEP_SECONDS},
    }
    idling = Case("steps of 20 ms", synthetic, options.slow_rounds, 50)
    slow = measure(idling)
    show(idling, slow)

    added = sorted(round_.added for round_ in fast)
    quarter = len(added) // 4
    quickest = min(r.trainhall for r in fast) - min(r.bare for r in fast)
    on_cpu = trimmed_mean(r.trainhall_cpu - r.bare_cpu for r in fast)
    report(
        Figure("bare step", trimmed_mean(r.bare for r in fast) * 1e6, "µs"),
        Figure("spread of what is added", (added[-1 - quarter] - added[quarter]) * 1e6, "µs"),
        Figure("added in the quickest rounds", quickest * 1e6, "µs"),
        Figure("added time on the processor", on_cpu * 1e6, "µs"),
        Figure("added to a step", trimmed_mean(added) * 1e6, "µs", at_most=GOAL_MICROSECONDS),
        Figure(
            "speed at steps of 20 ms",
            trimmed_mean(r.bare / r.trainhall for r in slow),
            at_least=GOAL_SPEED,
        ),
    )


if __name__ == "__main__":
    main()
