import { describe, expect, it } from "vitest";
import { isScattered, joinedByStep, pointsOf } from "./points";
import { CurveSeries, type Sample } from "./series";
import { CurveStore } from "./store";

const samples = (...points: [step: number, value: number | null][]): Sample[] =>
  points.map(([step, value]) => ({ step, time: step, value }));

function series(...points: [step: number, value: number | null][]): CurveSeries {
  const made = new CurveSeries();
  made.append(samples(...points));
  return made;
}

describe("joinedByStep", () => {
  const tokens = series([1, 100], [2, 200], [3, 300]);

  it("places each value at that of the other metric in its step", () => {
    const { at, values } = joinedByStep(series([1, 9], [2, 8], [3, 7]), tokens);
    expect([at, values]).toEqual([
      [100, 200, 300],
      [9, 8, 7],
    ]);
  });

  it("has one point per evaluation, on either axis", () => {
    const loss = series(...Array.from({ length: 9 }, (_, i): [number, number] => [i + 1, 9 - i]));
    const validation = series([4, 0.5], [8, 0.6]);
    expect(joinedByStep(validation, loss).at).toEqual([2, 6]);
    expect(joinedByStep(loss, validation)).toMatchObject({ at: [0.5, 0.6], values: [6, 2] });
  });

  it("joins thinned series by the newest point before", () => {
    const { at, values } = joinedByStep(series([1, 9], [4, 8]), tokens);
    expect([at, values]).toEqual([
      [100, 300],
      [9, 8],
    ]);
    expect(joinedByStep(series([1, 9]), series([2, 1], [3, 1])).at).toEqual([]);
  });

  it("is in the order of the axis, with the newest of points at one position", () => {
    const joined = joinedByStep(
      series([1, 9], [2, 8], [3, 7], [4, 6]),
      series([1, 30], [2, 10], [3, 30], [4, null]),
    );
    expect(joined).toMatchObject({ at: [10, 30], values: [8, 7] });
  });
});

it("points over a metric that goes back and forth are joined by no line", () => {
  const store = new CurveStore();
  store.append("tokens", null, samples([1, 10], [2, 10], [3, 20]));
  store.append("loss", null, samples([1, 3], [2, 4], [3, 2]));
  const curve = { store, name: "loss", label: "", color: "" };
  expect(isScattered(curve, "metrics.tokens")).toBe(false);
  expect(isScattered(curve, "metrics.loss")).toBe(true);
  expect(isScattered(curve, "step")).toBe(false);
  expect(pointsOf(curve, "metrics.tokens").values).toEqual([4, 2]);
  expect(pointsOf(curve, "metrics.missing").at).toEqual([]);
});
