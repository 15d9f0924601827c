"""A script that logs images, histograms and tables by step; it needs numpy alone.

python examples/scripts/with_media.py
trainhall submit examples/scripts/with_media.yaml -f
trainhall outputs get JOB
"""

import argparse
import json
from pathlib import Path

import numpy as np

import trainhall as th

SIZE = 16


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    th.init(total_steps=options.steps)
    random = np.random.default_rng(0)
    axis = np.linspace(-1, 1, SIZE)
    wanted = np.exp(-4 * (axis[:, None] ** 2 + axis[None, :] ** 2))
    image = random.uniform(size=(SIZE, SIZE))

    for step in range(1, options.steps + 1):
        difference = image - wanted
        image -= 0.05 * difference
        th.report(loss=float((difference**2).mean()), step=step)
        if step % 50 == 0:
            th.log_image("image", image, step=step)
            th.log_histogram("difference", difference, step=step)
            rows = np.abs(difference).mean(axis=1)
            th.log_table("error by row", {"row": range(SIZE), "error": rows}, step=step)

    summary = Path("summary.json")
    summary.write_text(json.dumps({"steps": options.steps}))
    th.log_artifact(summary)


if __name__ == "__main__":
    main()
