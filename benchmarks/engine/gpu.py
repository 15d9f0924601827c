"""Speed of the engine on one GPU, against the same model in a hand-written loop.

    benchmarks/gpu.sh [--device cpu] [--tiny] [--rounds 5] [--steps 20] [--no-compile]

ResNet-18 on images of CIFAR-10's shape and GPT-2 with 124 million parameters, in bf16, with and
without `torch.compile`. Each case is a process of its own, in which both loops take turns: model,
data, optimizer and autocast are the same, and Trainhall's also measures, writes metrics and listens
for commands. Memory is the allocator's peak while each loop runs alone, beside what the planner
predicts; the stall is the time that training waits for a checkpoint's copy.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.report import Figure, report
from trainhall.distributed import process_group
from trainhall.distributed.environment import RankEnvironment
from trainhall.parallelism.flops import forward_and_backward_flops
from trainhall.parallelism.pipelining.batches import to_device
from trainhall.parallelism.plan.trace import TraceError
from trainhall.training.link.control import Control
from trainhall.training.link.folder import AttemptFolder
from trainhall.training.link.launch import CheckpointPlan, Launch, RankSlot
from trainhall.training.link.spool import EventSpool, MetricSpool
from trainhall.training.loop.loop import Loop
from trainhall.training.loop.metrics_recorder import peak_memory_bytes
from trainhall.training.loop.mfu import peak_of
from trainhall.training.planning import planner as planning
from trainhall.training.process.rank_context import RankContext
from trainhall.training.spec import JobSpec
from trainhall.training.spec.parse import validate_spec
from trainhall.training.tasks import build_task
from trainhall.training.tasks.base import gives_batches

RESULTS = Path(__file__).parents[1] / "results"
GOAL_SPEED = 0.98
GOAL_PREDICTION = 10.0
GPT2 = {"layers": 12, "heads": 12, "width": 768, "context": 1024, "vocabulary": 50257}
TINY_GPT = {"layers": 2, "heads": 2, "width": 32, "context": 16, "vocabulary": 64}

Steps = Callable[[int], None]


@dataclass(frozen=True)
class Measured:
    """What one case gave."""

    case: str
    unit: str
    per_second: float
    by_hand_per_second: float
    ratio: float
    """Median over rounds of the time by hand as a share of ours."""
    utilization: float | None
    """Of the device's peak, where that is known."""
    peak_bytes: float
    by_hand_peak_bytes: float
    predicted_bytes: float | None
    stall_seconds: float
    checkpoint_bytes: int


def spec_of(name: str, *, compiled: bool, tiny: bool) -> JobSpec:
    batch = {"resnet18": 8, "gpt2": 2} if tiny else {"resnet18": 512, "gpt2": 16}
    params = {"samples": 4 * batch[name]}
    if name == "gpt2":
        params |= TINY_GPT if tiny else GPT2
    kind = "Images" if name == "resnet18" else "Tokens"
    return validate_spec(
        {
            "name": name,
            "task": {"name": f"benchmarks.engine.gpu_tasks:{kind}", "params": params},
            "training": {
                "steps": 10**9,
                "global_batch_size": batch[name],
                "precision": "bf16",
                "compile": compiled,
                "learning_rate": 1e-4,
            },
        }
    )


def by_hand(spec: JobSpec, device: torch.device) -> Steps:
    """The loop that one writes by hand, as a function that runs so many steps of it."""
    task = build_task(spec)
    model = task.build_model().to(device)
    called = torch.compile(model) if spec.training.compile else model
    training = spec.training
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=training.learning_rate, weight_decay=0.0, fused=True
    )
    data = task.train_data
    assert gives_batches(data)
    size, batch = len(data), training.global_batch_size

    def run(steps: int) -> None:
        for step in range(steps):
            first = step * batch % size
            read = data.batch(torch.arange(first, first + batch))
            on_device = to_device(read, device)
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss, _ = task.loss(cast(nn.Module, called), on_device)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return run


def in_trainhall(
    spec: JobSpec, folder: AttemptFolder, environment: RankEnvironment, device: torch.device
) -> Loop:
    launch = Launch(
        job_id="bench", attempt=1, generation=1, spec=spec, world_size=1, node_rank=0, num_nodes=1,
        ranks=[RankSlot(rank=0, local_rank=0, device_kind=device.type, device_index=0)],
        checkpoint=CheckpointPlan(folder=str(folder.path / "checkpoints"), upload=False),
    )  # fmt: skip
    spools = EventSpool(folder.events(0), 0), MetricSpool(folder.metrics(0))
    loop = Loop(RankContext(environment, launch, folder, device, *spools))
    loop.resume()
    loop.progress.begin(0)
    return loop


def seconds(work: Steps, steps: int, device: torch.device) -> float:
    """Of one step, its kernels included."""
    wait_for(device)
    begun = time.perf_counter()
    work(steps)
    wait_for(device)
    return (time.perf_counter() - begun) / steps


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def peak_memory_of(work: Callable[[], object], device: torch.device) -> float:
    """Bytes that were allocated at most for what `work` builds and runs."""
    before = 0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    work()
    wait_for(device)
    return peak_memory_bytes(device) - before


def stall(loop: Loop) -> tuple[float, int]:
    """Seconds that training waits for a checkpoint, and the checkpoint's bytes."""
    loop.saving.prepare()
    waits = []
    for _ in range(3):
        loop.train_step()
        assert loop.settle() is None
        wait_for(loop.device)
        begun = time.perf_counter()
        loop.saving.save({})
        waits.append(time.perf_counter() - begun)
        loop.saving.finish()
    folder = max(Path(loop.context.launch.checkpoint.folder).glob("step-*"))
    size = sum(file.stat().st_size for file in folder.iterdir())
    return statistics.median(waits), size


def measure(case: str, options: argparse.Namespace) -> Measured:
    """Run one case in this process."""
    name, _, compiled = case.partition("+")
    spec = spec_of(name, compiled=bool(compiled), tiny=options.tiny)
    predicted = predicted_memory(spec, options.device)
    device = torch.device(options.device)
    if device.type == "cuda":
        torch.cuda.set_device(0)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    environment = RankEnvironment(
        rank=0, local_rank=0, world_size=1, local_world_size=1,
        master_addr="127.0.0.1", master_port=store.port,
    )  # fmt: skip
    with (
        tempfile.TemporaryDirectory(prefix="trainhall-bench-") as temporary,
        process_group.joined(environment, device=device, namespace=case),
    ):
        folder = AttemptFolder(Path(temporary))
        (folder.path / "checkpoints").mkdir()
        folder.rank(0).mkdir(parents=True)
        Control(folder.control, create=True)
        built: dict[str, Any] = {}

        def ours(steps: int) -> None:
            for _ in range(steps):
                built["ours"].train_step()
                assert built["ours"].settle() is None

        def begin_ours() -> None:
            built["ours"] = in_trainhall(spec, folder, environment, device)
            ours(options.warm_up)

        def begin_by_hand() -> None:
            built["by hand"] = by_hand(spec, device)
            built["by hand"](options.warm_up)

        peaks = [peak_memory_of(begin_ours, device), peak_memory_of(begin_by_hand, device)]
        rounds: list[tuple[float, float]] = []
        for number in range(options.rounds):
            works = [ours, built["by hand"]]
            times = {
                which: seconds(works[which], options.steps, device)
                for which in ((0, 1) if number % 2 == 0 else (1, 0))
            }
            rounds.append((times[0], times[1]))
        wait, size = stall(built["ours"])
        task = built["ours"].task
        batch = task.train_data.batch(torch.arange(spec.training.global_batch_size))
        flops = forward_and_backward_flops(task.build_model(), task.loss, batch)
    mine, theirs = (statistics.median(each) for each in zip(*rounds, strict=True))
    peak = peak_of(device, spec.training.precision)
    units = spec.training.global_batch_size
    if name == "gpt2":
        units *= batch[0].shape[1]
    return Measured(
        case=case,
        unit="tokens/s" if name == "gpt2" else "samples/s",
        per_second=units / mine,
        by_hand_per_second=units / theirs,
        ratio=statistics.median(theirs / mine for mine, theirs in rounds),
        utilization=None if peak is None else flops / mine / peak,
        peak_bytes=peaks[0],
        by_hand_peak_bytes=peaks[1],
        predicted_bytes=predicted,
        stall_seconds=wait,
        checkpoint_bytes=size,
    )


def predicted_memory(spec: JobSpec, kind: Literal["cpu", "cuda"]) -> float | None:
    """The planner's prediction; None where it has none."""
    try:
        return float(sum(planning.predicted_memory(spec, kind).values()))
    except TraceError as error:
        print(f"no prediction of memory: {error}", file=sys.stderr)
        return None


def show(results: list[Measured], *, on_gpu: bool) -> None:
    figures = []
    for each in results:
        figures += [
            Figure(f"{each.case}: speed", each.per_second, each.unit),
            Figure(f"{each.case}: speed by hand", each.by_hand_per_second, each.unit),
            Figure(f"{each.case}: share of it", each.ratio, at_least=GOAL_SPEED),
        ]
        if each.utilization is not None:
            figures.append(Figure(f"{each.case}: FLOP utilisation", 100 * each.utilization, "%"))
        if on_gpu:  # on a CPU it would be all that the process holds
            figures += [
                Figure(f"{each.case}: peak memory", each.peak_bytes / 2**20, "MiB"),
                Figure(f"{each.case}: peak by hand", each.by_hand_peak_bytes / 2**20, "MiB"),
            ]
        if on_gpu and each.predicted_bytes is not None:
            error = 100 * abs(each.predicted_bytes / each.peak_bytes - 1)
            goal = None if each.case.endswith("+compile") else GOAL_PREDICTION
            figures += [
                Figure(f"{each.case}: predicted", each.predicted_bytes / 2**20, "MiB"),
                Figure(f"{each.case}: error of it", error, "%", at_most=goal),
            ]
        figures.append(Figure(f"{each.case}: checkpoint stall", 1000 * each.stall_seconds, "ms"))
    report(*figures)


def hardware(device: torch.device) -> dict[str, str]:
    found = {
        "device": "cpu" if device.type == "cpu" else torch.cuda.get_device_name(),
        "host": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if device.type == "cuda":
        found["cuda"] = str(torch.version.cuda)
    return found


def keep(results: list[Measured], device: torch.device, folder: Path) -> Path:
    """Write the results down, under the day and the hardware."""
    hardware_info = hardware(device)
    now = datetime.now(UTC)
    name = "-".join(hardware_info["device"].lower().split())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{now:%Y-%m-%d}-{name}.json"
    document = {
        "date": f"{now:%Y-%m-%dT%H:%MZ}",
        **hardware_info,
        "results": list(map(asdict, results)),
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models: does it work?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of each loop in a round")
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    parser.add_argument("--output", type=Path, help="folder for the results")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("this host has no CUDA device that torch sees; --device cpu --tiny tries the command")
        return 1
    if options.case is not None:
        print(json.dumps(asdict(measure(options.case, options))), flush=True)
        return 0
    results = []
    for case in ("resnet18", "resnet18+compile", "gpt2", "gpt2+compile"):
        if options.no_compile and case.endswith("+compile"):
            continue
        print(f"{case} …", flush=True)
        command = [sys.executable, "-m", "benchmarks.engine.gpu", *sys.argv[1:], "--case", case]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"{case} failed with exit code {done.returncode}")
        results.append(Measured(**json.loads(done.stdout.splitlines()[-1])))
    show(results, on_gpu=device.type == "cuda")
    output = options.output or (RESULTS if device.type == "cuda" else None)
    if output is not None:
        print(f"written to {keep(results, device, output)}")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the destructors of Gloo's threads can deadlock
