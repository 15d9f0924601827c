"""Accuracy after the same number of epochs, with and without compressed gradients.

    python -m benchmarks.engine.convergence [DATA] [--epochs 10] [--output FOLDER]

DATA is a folder with MNIST's files; default: scikit-learn's digits. Two ranks train the same MLP by
`trainhall run` with the same seed: without compression, and with each compression (ratio 1 %). The
goal is the final validation accuracy without compression, less one point. `--output` writes a page
and a plot: `convergence-<task>.md` and `.png`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure as Picture

from benchmarks.report import Figure, report
from trainhall.parallelism.data_parallel.gradient_sync import DEFAULT_RATIO, FEEDS_BACK

POINT = 0.01
COMPRESSIONS = ("none", "fp16", "bf16", "topk", "powersgd")
EVALUATE_EVERY = 50
BATCH = 64


@dataclass(frozen=True)
class Run:
    label: str
    curve: list[tuple[int, float]]
    """Step and accuracy on held-out data."""
    share: float
    """What compressing takes of a step, at the median; 0 without compression."""

    @property
    def accuracy(self) -> float:
        return self.curve[-1][1]


def spec(data: Path | None, compression: str, epochs: int) -> dict[str, Any]:
    task: dict[str, Any] = {"name": "digits", "params": {"hidden": [64]}}
    if data is not None:
        task = {"name": "mnist", "params": {"root": str(data.resolve()), "model": "mlp"}}
    return {
        "name": f"convergence-{compression}",
        "task": task,
        "resources": {"workers": 2, "device": "cpu"},
        "parallelism": {"gradient_sync": {"compression": compression}},
        "training": {
            "epochs": epochs,
            "global_batch_size": BATCH,
            "optimizer": "sgd",
            "learning_rate": 0.05,
            "seed": 1,
            "evaluate_every_steps": EVALUATE_EVERY,
        },
    }


def train(data: Path | None, compression: str, epochs: int, folder: Path) -> Run:
    file, output = folder / f"{compression}.json", folder / compression
    file.write_text(json.dumps(spec(data, compression, epochs)))
    command = [
        sys.executable,
        "-m",
        "trainhall.cli.main",
        "run",
        str(file),
        "--output",
        str(output),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    steps = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    shares = [step.get("compression_seconds", 0.0) / step["step_seconds"] for step in steps]
    return Run(
        f"{compression} {DEFAULT_RATIO:.0%}" if compression in FEEDS_BACK else compression,
        [(s["step"], s["eval_accuracy"]) for s in steps if "eval_accuracy" in s],
        statistics.median(shares),
    )


def page(runs: list[Run], task: str, epochs: int) -> str:
    """The results as Markdown."""
    dense = runs[0]
    steps = [step for step, _ in dense.curve]
    quarters = [steps[max(0, len(steps) * part // 4 - 1)] for part in (1, 2, 3, 4)]
    heads = ["gradients", *(f"step {step:,}" for step in quarters), "points off", "of a step"]
    rows = []
    for run in runs:
        at = dict(run.curve)
        off = 100 * (run.accuracy - dense.accuracy)
        cells = [f"{at[step]:.2%}" for step in quarters]
        rows.append([run.label, *cells, f"{off:+.2f}", f"{run.share:.0%}" if run.share else "–"])
    lines = [heads, ["---"] * len(heads), *rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    images = steps[-1] * BATCH // epochs
    return f"""# Convergence under compression: {task}

`benchmarks/engine/convergence.py`: an MLP on two ranks, {epochs} epochs of about {images:,} images
in batches of {BATCH}, with SGD, momentum and one seed. Accuracy is on the validation set.
*Points off* is the difference to `none` at the end; *of a step* is `compression_seconds` /
`step_seconds`, for a model whose steps do little else.

{table}

![accuracy against steps](convergence-{task}.png)
"""


def draw(path: Path, runs: list[Run]) -> None:
    picture = Picture(figsize=(7, 4.5), layout="constrained")
    axes = picture.subplots()
    for run in runs:
        axes.plot(*zip(*run.curve, strict=True), label=run.label)
    axes.set(xlabel="step", ylabel="validation accuracy", ylim=(0.8, 1.0))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    picture.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", type=Path, help="a folder with MNIST's files")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--output", type=Path, help="folder for a page and a plot")
    options = parser.parse_args()
    task = "digits" if options.data is None else "mnist"
    runs: list[Run] = []
    with tempfile.TemporaryDirectory() as folder:
        for compression in COMPRESSIONS:
            runs.append(train(options.data, compression, options.epochs, Path(folder)))
            print(f"{runs[-1].label:<14}accuracy {runs[-1].accuracy:.4f}", flush=True)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        text = page(runs, task, options.epochs)
        (options.output / f"convergence-{task}.md").write_text(text, encoding="utf-8")
        draw(options.output / f"convergence-{task}.png", runs)
    dense, *others = runs
    report(
        *(
            Figure(f"accuracy with {run.label}", run.accuracy, at_least=dense.accuracy - POINT)
            for run in others
        ),
        *(Figure(f"{run.label}, of a step", 100 * run.share, "%") for run in others),
    )


if __name__ == "__main__":
    main()
