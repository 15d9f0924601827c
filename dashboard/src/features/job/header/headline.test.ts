import { describe, expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { CurveStore } from "@/shared/curves/data/store";
import { headlines, RECENT_POINTS } from "./headline";

function store(points: Record<string, (number | null)[]>): CurveStore {
  const made = new CurveStore();
  for (const [name, values] of Object.entries(points)) {
    made.append(
      name,
      null,
      values.map((value, i) => ({ step: i + 1, time: i, value })),
    );
  }
  return made;
}

const tiles = (
  metrics: Record<string, number | string>,
  curves: CurveStore,
  job: Partial<Pick<Job, "main_metric" | "spec">> = {},
) =>
  headlines({ metrics, main_metric: null, spec: {}, ...job }, curves).map(
    ({ label, text, of }) => `${label}: ${text} (${of})`,
  );

describe("headlines", () => {
  it("are means of the last steps", () => {
    const noisy = Array.from({ length: 100 }, (_, i) => (i < 80 ? 9 : i % 2));
    expect(tiles({ loss: 1 }, store({ loss: noisy }))).toEqual([
      `Loss: 0.5 (mean of the last ${RECENT_POINTS} steps)`,
    ]);
    expect(tiles({ loss: 3 }, store({ loss: [3] }))).toEqual(["Loss: 3 (latest step)"]);
  });

  it("show the best and the latest evaluation", () => {
    const curves = store({ eval_loss: [3, 1, 2], eval_accuracy: [0.5, 0.75, 0.9] });
    expect(tiles({}, curves)).toEqual([
      "Validation loss: 1 (best, at step 2, latest 2)",
      "Validation accuracy: 0.9 (best, at step 3)",
    ]);
    expect(tiles({}, store({ eval_accuracy: [0.5, 0.9, 0.9] }))).toEqual([
      "Validation accuracy: 0.9 (best, at step 2, latest 0.9)",
    ]);
  });

  it("show the best of a validation metric in any spelling", () => {
    const metrics = { "val/loss": 2, "valid.accuracy": 0.5, "val/f1": 0.7 };
    const curves = store({
      "val/loss": [3, 1, 2],
      "valid.accuracy": [0.75, 0.5],
      "val/f1": [0.8, 0.7],
    });
    expect(tiles(metrics, curves)).toEqual([
      "val/f1: 0.7 (latest, at step 2)",
      "Validation loss: 1 (best, at step 2, latest 2)",
      "Validation accuracy: 0.75 (best, at step 1, latest 0.5)",
    ]);
  });

  it("show a loss that is no longer finite", () => {
    expect(tiles({ loss: "nan" }, store({ loss: [1, 1, null] }))).toEqual([
      "Loss: NaN (latest step)",
    ]);
  });

  it("are those of the latest step until the curves are loaded", () => {
    expect(tiles({ loss: 2, psnr: 31.5 }, new CurveStore())).toEqual([
      "Loss: 2 (latest step)",
      "Psnr: 31.5 (latest step)",
    ]);
    expect(tiles({ tokens_per_second: 41460 }, new CurveStore())).toEqual([
      "Tokens per second: 41.5 k (latest step)",
    ]);
  });

  it("leave out a metric of steps that a later attempt repeats", () => {
    expect(tiles({ loss: 2, eval_loss: 0.5 }, store({ loss: [2] }))).toEqual([
      "Loss: 2 (latest step)",
    ]);
  });

  it("count reports where not every step has one", () => {
    const curves = new CurveStore();
    const points = [1, 3, 5].map((step) => ({ step, time: step, value: 2 }));
    curves.append("loss", null, points);
    expect(tiles({ loss: 2 }, curves)).toEqual(["Loss: 2 (mean of the last 3 reports)"]);
  });

  it("compare a pipeline's bubble with the expected one", () => {
    const curves = store({ bubble_fraction: [0.3, 0.3], bubble_fraction_expected: [0.25, 0.25] });
    expect(tiles({ bubble_fraction: 0.3, bubble_fraction_expected: 0.25 }, curves)).toEqual([
      "Pipeline bubble: 30 % (mean of the last 2 steps · expected 25 %)",
    ]);
  });

  describe("begin with the main metric", () => {
    const curves = store({ lr: [1, 1], "train/loss": [3, 1], "val/f1": [0.5, 0.7, 0.6] });
    const metrics = { lr: 1, "train/loss": 1, "val/f1": 0.6 };

    it("as its latest value where its goal is unknown", () => {
      const main_metric = { name: "val/f1", value: 0.6, goal: null };
      expect(tiles(metrics, curves, { main_metric })).toEqual([
        "val/f1: 0.6 (latest, at step 3)",
        "lr: 1 (mean of the last 2 steps)",
        "train/loss: 2 (mean of the last 2 steps)",
      ]);
    });

    it("as its best value for a validation metric or one that the spec names", () => {
      const main_metric = { name: "val/f1", value: 0.6, goal: "max" } as const;
      const [first] = tiles(metrics, curves, { main_metric, spec: { metric: main_metric } });
      expect(first).toBe("val/f1: 0.7 (best, at step 2, latest 0.6)");
      const accuracy = { name: "eval_accuracy", value: 0.5, goal: "max" } as const;
      const evaluated = store({ loss: [2, 1], eval_accuracy: [0.75, 0.5] });
      expect(tiles({ loss: 1 }, evaluated, { main_metric: accuracy })).toEqual([
        "Validation accuracy: 0.75 (best, at step 1, latest 0.5)",
        "Loss: 1.5 (mean of the last 2 steps)",
      ]);
    });

    it("as the mean for a training loss", () => {
      const main_metric = { name: "train/loss", value: 1, goal: "min" } as const;
      const [first] = tiles(metrics, curves, { main_metric });
      expect(first).toBe("train/loss: 2 (mean of the last 2 steps)");
    });

    it("unless it was not reported yet", () => {
      const main_metric = { name: "val/f1", value: null, goal: "max" } as const;
      const [first] = tiles({ loss: 2 }, new CurveStore(), { main_metric });
      expect(first).toBe("Loss: 2 (latest step)");
    });
  });
});
