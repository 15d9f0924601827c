"""The errors of `trainhall verify` as a drawing: by step, a curve for each strategy and mesh."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from trainhall.training.verify.tolerance import TOLERANCES, Dtype

if TYPE_CHECKING:
    from trainhall.cli.verify.runs import Result

KINDS = ("loss", "gradient", "weight")
LEAST = 1e-18
"""Position of an error of zero on the logarithmic axis."""


def draw(path: Path, results: "list[Result]", dtype: Dtype) -> None:
    """Write a PNG or SVG file, as its name says, of what was compared."""
    # Without `pyplot`, which looks for a screen.
    from matplotlib.figure import Figure

    compared = [result for result in results if result.errors]
    figure = Figure(figsize=(14, 5), layout="constrained")
    axes = figure.subplots(1, len(KINDS), sharey=True)
    for axis, kind in zip(axes, KINDS, strict=True):
        for i, result in enumerate(compared):
            steps = [error["step"] for error in result.errors]
            values = [max(error[kind], LEAST) for error in result.errors]
            style = ("-", "--", ":")[i // 10 % 3]
            axis.plot(steps, values, style, label=f"{result.strategy}: {result.mesh}")
        allowed = getattr(TOLERANCES[dtype], kind)
        if math.isfinite(allowed):
            axis.axhline(allowed, color="black", linewidth=0.8)
        axis.set_yscale("log")
        axis.set_title(kind)
        axis.set_xlabel("step")
        axis.grid(visible=True, alpha=0.3)
    axes[0].set_ylabel("‖a−b‖ / max(‖b‖, floor)")
    if compared:
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    figure.savefig(path)
