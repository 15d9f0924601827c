import { describe, expect, it } from "vitest";
import type { Points } from "@/shared/curves/data/curve";
import { pointsOf } from "@/shared/curves/data/points";
import { CurveStore } from "@/shared/curves/data/store";
import { chartData, smoothed, stackedData, trimmedExtremes } from "./columns";

function points(...points: [step: number, value: number | null, time?: number][]): Points {
  const store = new CurveStore();
  store.append(
    "loss",
    null,
    points.map(([step, value, time = 0]) => ({ step, time, value })),
  );
  const axis = points.some(([, , time]) => time) ? "time" : "step";
  return pointsOf({ store, name: "loss", label: "", color: "" }, axis);
}

describe("smoothed", () => {
  it("starts at the first value instead of zero", () => {
    expect(smoothed([4, 4, 4], 0.9)).toEqual([4, 4, 4].map((v) => expect.closeTo(v)));
  });

  it("keeps gaps, and is empty when off", () => {
    expect(smoothed([1, null, 1], 0.5)).toEqual([1, null, 1]);
    expect(smoothed([1, 2], 0)).toEqual([null, null]);
  });
});

describe("chartData", () => {
  it("joins curves with different steps over one axis", () => {
    const loss = { points: points([1, 5], [2, 4], [3, 3]), smoothing: 0 };
    const validation = { points: points([2, 9]), smoothing: 0 };
    const data = chartData([loss, validation, { points: points(), smoothing: 0 }]);
    expect(data[0]).toEqual([1, 2, 3]);
    expect(data[3]).toEqual([5, 4, 3]);
    // Missing for want of a point, which a line may cross; not a gap.
    expect(data[7]).toEqual([undefined, 9, undefined]);
    expect(data).toHaveLength(1 + 3 * 4);
  });

  it("keeps time increasing when a clock is set back", () => {
    const jumping = points([1, 1, 100], [2, 2, 50], [3, 3, 101]);
    const [x] = chartData([{ points: jumping, smoothing: 0 }]);
    expect([...x]).toEqual([...x].sort((a, b) => a - b));
    expect(new Set(x).size).toBe(3);
  });

  it("is empty columns without points", () => {
    expect(chartData([{ points: points(), smoothing: 0 }])).toEqual([[], [], [], [], []]);
  });
});

describe("stackedData", () => {
  it("adds each curve to those before it, with missing values as 0", () => {
    const curves = [points([1, 2], [2, 3]), points(), points([1, 10], [2, null])];
    const data = stackedData(curves.map((each) => ({ points: each, smoothing: 0 })));
    expect(data[0]).toEqual([1, 2]);
    expect([data[3], data[7], data[11]]).toEqual([
      [2, 3],
      [2, 3],
      [12, 3],
    ]);
    expect(data).toHaveLength(1 + 3 * 4);
  });
});

it("an axis without outliers ignores a spike, but not one of few values", () => {
  const all = Array.from({ length: 100 }, (_, i): [number, number] => [i + 1, i === 3 ? 1e6 : i]);
  const data = (length: number) =>
    chartData([{ points: points(...all.slice(0, length)), smoothing: 0 }]);
  expect(trimmedExtremes(data(100))).toEqual([2, 98]);
  expect(trimmedExtremes(data(10))).toBeNull();
});
