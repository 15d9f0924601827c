"""Predicted peak memory against PyTorch's memory tracker in two real ranks on the CPU.

python -m benchmarks.engine.plan_memory
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, report
from trainhall.training.planning.planner import predicted_memory
from trainhall.training.spec.parse import validate_spec

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support.cluster.attempts import rank_server
from support.storage.data_files import write_cifar10

MEBIBYTE = 2**20
FUNCTION = "support.ranks.memory:measured"


def tasks(folder: Path) -> dict[str, dict[str, Any]]:
    write_cifar10(folder)
    return {
        "MLP": {"name": "synthetic", "params": {"features": 512, "hidden": [1024, 1024, 1024]}},
        "ResNet-18": {"name": "cifar10", "params": {"root": str(folder)}},
        "GPT": {"name": "language_model", "params": {"size": "mini", "vocabulary": 4096}},
    }


def main() -> None:
    figures = []
    with rank_server() as ranks, tempfile.TemporaryDirectory() as root:
        for name, task in tasks(Path(root, "data")).items():
            for strategy in ("ddp", "fsdp", "tensor", "pipeline", "model", "parameter_server"):
                if (name, strategy) == ("ResNet-18", "tensor"):
                    continue  # which it cannot do
                spec = {
                    "name": name,
                    "task": task,
                    "resources": {"workers": 2},
                    "parallelism": {"strategy": strategy},
                    "training": {"steps": 3, "global_batch_size": 16},
                }
                folder = ranks.start(Path(root, name, strategy), spec, function=FUNCTION)
                attempt = ranks.wait(folder)
                if any(attempt.codes):
                    sys.exit(attempt.stderr())
                peaks = [
                    json.loads((folder.path / f"peak-{rank}.json").read_text()) for rank in (0, 1)
                ]
                predicted, measured = (
                    sum(predicted_memory(validate_spec(spec)).values()),
                    max(peaks),
                )
                print(
                    f"{name:10} {strategy:16} predicted {predicted / MEBIBYTE:8.1f} MiB, measured "
                    f"{measured / MEBIBYTE:8.1f} MiB",
                    flush=True,
                )
                off = abs(predicted / measured - 1)
                figures.append(Figure(f"{name}, {strategy}: off by", off, at_most=0.1))
    report(*figures)


if __name__ == "__main__":
    main()
