import { describe, expect, it } from "vitest";
import { CurveSeries, type Sample } from "./series";

const run = (from: number, to: number, time = 0, value = (step: number) => step): Sample[] =>
  Array.from({ length: to - from + 1 }, (_, i) => ({
    step: from + i,
    time: time + from + i,
    value: value(from + i),
  }));

describe("CurveSeries", () => {
  it("joins overlapping history and live tail without gap or repeat", () => {
    const series = new CurveSeries();
    series.append(run(1, 100));
    expect(series.append(run(80, 100))).toBe(false);
    series.append(run(95, 120));
    expect(series.steps).toEqual(run(1, 120).map((sample) => sample.step));
    expect(series.values).toEqual(run(1, 120).map((sample) => sample.value));
  });

  it("replaces steps that a later attempt repeated", () => {
    const series = new CurveSeries();
    series.append(run(1, 150));
    series.append(run(101, 110, 1000, () => -1));
    expect(series.steps).toEqual(run(1, 110).map((sample) => sample.step));
    expect(series.values.slice(99, 102)).toEqual([100, -1, -1]);
  });

  it("ignores late frames of the earlier attempt", () => {
    const series = new CurveSeries();
    series.append(run(1, 150));
    series.append(run(101, 110, 1000));
    expect(series.append(run(101, 110))).toBe(false);
    expect(series.last?.time).toBe(1110);
  });

  it("keeps values that are not finite as gaps", () => {
    const series = new CurveSeries();
    series.append([
      { step: 1, time: 1, value: 2 },
      { step: 2, time: 2, value: Number.NaN },
      { step: 3, time: 3, value: Infinity },
    ]);
    expect(series.values).toEqual([2, null, null]);
    expect(series.maxs).toEqual([2, null, null]);
  });

  it("stays bounded and keeps the last point and every spike", () => {
    const series = new CurveSeries(100);
    for (let step = 1; step <= 5000; step++) {
      const value = step === 1234 ? 999 : step === 3210 ? -999 : 1;
      series.append([{ step, time: step, value }]);
    }
    expect(series.length).toBeLessThanOrEqual(100);
    expect(series.length).toBeGreaterThan(20);
    expect(series.last).toMatchObject({ step: 5000, value: 1 });
    expect(Math.max(...series.maxs.map((value) => value ?? 0))).toBe(999);
    expect(Math.min(...series.mins.map((value) => value ?? 0))).toBe(-999);
    expect(series.steps).toEqual([...series.steps].sort((a, b) => a - b));
  });

  it("stays bounded when history comes in wide buckets", () => {
    const series = new CurveSeries(100);
    const wide = Array.from({ length: 150 }, (_, i) => ({
      step: (i + 1) * 1_000_000,
      time: i,
      value: i,
    }));
    series.append(wide);
    expect(series.length).toBeLessThanOrEqual(100);
    expect(series.last?.step).toBe(150_000_000);
  });
});
