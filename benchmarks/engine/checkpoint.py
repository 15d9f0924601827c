"""Time that a checkpoint stops training, against one plain copy of the same memory.

    python -m benchmarks.engine.checkpoint [--megabytes 384] [--tensors 300] [--rounds 7]

One run makes a state of many tensors (as a model with AdamW has), then in turn copies one flat
block of its size and saves the state, and compares the medians. The goal is a ratio of at most 1.3.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import Figure, report
from trainhall.training.checkpoint.checkpointer import Checkpointer
from trainhall.training.checkpoint.format.draft import Committed
from trainhall.training.checkpoint.format.removal import retire
from trainhall.training.fencing import FencingToken
from trainhall.training.spec.recovery import CheckpointSpec

GOAL = 1.3


def make_state(megabytes: int, tensors: int) -> dict[str, Any]:
    """A third of the bytes are weights, two thirds the moments of AdamW."""
    per_kind = max(1, tensors // 3)
    elements = megabytes * 1024 * 1024 // 4 // (3 * per_kind)
    kinds = {
        kind: {f"layer{i}.weight": torch.randn(elements) for i in range(per_kind)}
        for kind in ("weight", "exp_avg", "exp_avg_sq")
    }
    moments = {f"{name}.{kind}": t for kind in ("exp_avg", "exp_avg_sq")
               for name, t in kinds[kind].items()}  # fmt: skip
    return {"model": kinds["weight"], "optimizer": moments, "extra": {"sampler": {"epoch": 1}}}


def seconds(begun: float) -> float:
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=384)
    parser.add_argument("--tensors", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    options = parser.parse_args()

    state = make_state(options.megabytes, options.tensors)
    size = sum(t.nbytes for part in ("model", "optimizer") for t in state[part].values())
    source = torch.randn(size // 4)
    target = torch.zeros_like(source)
    folder = Path(tempfile.mkdtemp(prefix="trainhall-benchmark-", dir=options.folder))
    committed: list[Committed] = []
    errors: list[Exception] = []
    rule = CheckpointSpec(keep_latest=1)

    def keep(done: Committed) -> None:
        committed.append(done)
        retire(folder, rule)

    checkpointer = Checkpointer(
        folder, FencingToken("benchmark", 1, 1), None, keep, on_error=errors.append
    )
    copies, stalls, writes = [], [], []
    try:
        begun = time.perf_counter()
        checkpointer.prepare(state)
        checkpointer.wait()
        prepared = seconds(begun)
        for step in range(1, options.rounds + 1):
            begun = time.perf_counter()
            target.copy_(source)
            copies.append(seconds(begun))
            begun = time.perf_counter()
            checkpointer.save(step, state, {"loss": 1.0})
            stalls.append(seconds(begun))
            checkpointer.wait()
            writes.append(seconds(begun))
        if errors:
            raise errors[0]
        verified = time.perf_counter()
        checkpointer.load([committed[-1].name], state)
        loaded = seconds(verified)
    finally:
        shutil.rmtree(folder)

    copy, stall = statistics.median(copies), statistics.median(stalls)
    print(f"state         {size / 1e6:8.1f} MB in {options.tensors} tensors")
    print(f"prepare       {prepared * 1e3:8.1f} ms (once, in the background)")
    print(f"one copy      {copy * 1e3:8.1f} ms ({size / copy / 1e9:.1f} GB/s)")
    print(f"stall         {stall * 1e3:8.1f} ms (first {stalls[0] * 1e3:.1f} ms)")
    print(f"until durable {statistics.median(writes) * 1e3:8.1f} ms")
    print(f"verify, load  {loaded * 1e3:8.1f} ms")
    report(
        Figure("ratio of the quickest", min(stalls) / min(copies)),
        Figure("stall to one copy", stall / copy, at_most=GOAL),
    )


if __name__ == "__main__":
    main()
