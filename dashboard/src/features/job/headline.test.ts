import { describe, expect, it } from "vitest";
import { CurveStore } from "@/shared/curves/store";
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

const told = (metrics: Record<string, number | string>, curves: CurveStore) =>
  headlines({ metrics }, curves).map(({ label, text, of }) => `${label}: ${text} (${of})`);

describe("headlines", () => {
  it("are means of the last steps, since a single step is noise", () => {
    const noisy = Array.from({ length: 100 }, (_, i) => (i < 80 ? 9 : i % 2));
    expect(told({ loss: 1 }, store({ loss: noisy }))).toEqual([
      `Loss: 0.5 (mean of the last ${RECENT_POINTS} steps)`,
    ]);
    expect(told({ loss: 3 }, store({ loss: [3] }))).toEqual(["Loss: 3 (the last step)"]);
  });

  it("tell the best evaluation and the newest", () => {
    const curves = store({ eval_loss: [3, 1, 2], eval_accuracy: [0.5, 0.75, 0.9] });
    expect(told({}, curves)).toEqual([
      "Held-out loss: 1 (best, at step 2, now 2)",
      "Held-out accuracy: 0.9 (best, at step 3)",
    ]);
    expect(told({}, store({ eval_accuracy: [0.5, 0.9, 0.9] }))).toEqual([
      "Held-out accuracy: 0.9 (best, at step 3)",
    ]);
  });

  it("say so when the loss is no number any more", () => {
    expect(told({ loss: "nan" }, store({ loss: [1, 1, null] }))).toEqual([
      "Loss: NaN (the last step)",
    ]);
  });

  it("are those of the last step until the curves are there, and of what a script reports", () => {
    expect(told({ loss: 2, psnr: 31.5 }, new CurveStore())).toEqual([
      "Loss: 2 (the last step)",
      "Psnr: 31.5 (the last step)",
    ]);
    expect(told({ tokens_per_second: 41460 }, new CurveStore())).toEqual([
      "Tokens per second: 41.5 k (the last step)",
    ]);
  });

  it("count what was reported where not every step did", () => {
    const curves = new CurveStore();
    const points = [1, 3, 5].map((step) => ({ step, time: step, value: 2 }));
    curves.append("loss", null, points);
    expect(told({ loss: 2 }, curves)).toEqual(["Loss: 2 (mean of the last 3 reports)"]);
  });

  it("tell a pipeline's bubble beside the expected one", () => {
    const curves = store({ bubble_fraction: [0.3, 0.3], bubble_fraction_expected: [0.25, 0.25] });
    expect(told({ bubble_fraction: 0.3, bubble_fraction_expected: 0.25 }, curves)).toEqual([
      "Pipeline bubble: 30 % (mean of the last 2 steps · expected 25 %)",
    ]);
  });
});
