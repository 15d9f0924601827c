import { describe, expect, it } from "vitest";
import type { Curve } from "@/shared/curves/data/curve";
import { pointsOf } from "@/shared/curves/data/points";
import { CurveStore } from "@/shared/curves/data/store";
import { legendOrder, legendText } from "./legend";

function curve(...points: [step: number, value: number | null][]): Curve {
  const store = new CurveStore();
  store.append(
    "eval_loss",
    null,
    points.map(([step, value]) => ({ step, time: 1000 + step, value })),
  );
  return { store, name: "eval_loss", label: "validation", color: "gray", origin: 1000 };
}

const text = (of: Curve, cursor: number | null, axis: "step" | "elapsed" = "step") =>
  legendText(
    pointsOf(of, axis),
    axis,
    cursor,
    (value) => (value === null ? "—" : String(value)),
    true,
  );

describe("legendText", () => {
  const validation = curve([50, 0.112], [110, 0.083], [160, null]);

  it("shows the point at the cursor", () => {
    expect(text(validation, 50)).toBe("0.112");
  });

  it("shows the point before the cursor with its step, never the last one", () => {
    expect(text(validation, 55)).toBe("0.112 (step 50)");
    expect(text(validation, 109)).toBe("0.112 (step 50)");
    expect(text(validation, 55, "elapsed")).toBe("0.112 (50 s)");
  });

  it("shows nothing before the first point or without points", () => {
    expect(text(validation, 49)).toBe("—");
    expect(text({ ...validation, name: "none" }, 55)).toBe("—");
  });

  it("does not skip a value that is not finite", () => {
    expect(text(validation, 170)).toBe("— (step 160)");
  });

  it("shows the latest value without a cursor", () => {
    expect(text(curve([50, 1], [60, 2]), null)).toBe("2");
  });

  it("shows the extremes of a bucket", () => {
    const loss = curve();
    loss.store.append("eval_loss", null, [{ step: 8, time: 0, value: 2, min: 1, max: 9 }]);
    expect(text(loss, 8)).toBe("2 (1 to 9)");
    expect(text(loss, null)).toBe("2");
  });
});

it("the legend is sorted by the values at the cursor", () => {
  const curves = [curve([1, 0.1]), curve([1, 0.3]), curve([5, 0.9])].map((each) =>
    pointsOf(each, "step"),
  );
  expect(legendOrder(curves, 1)).toEqual([1, 0, 2]);
  expect(legendOrder(curves, null)).toEqual([0, 1, 2]);
});
