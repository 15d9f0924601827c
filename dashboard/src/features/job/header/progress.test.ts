import { describe, expect, it } from "vitest";
import { CurveSeries } from "@/shared/curves/data/series";
import { secondsLeft } from "./progress";

function series(points: [step: number, time: number][]): CurveSeries {
  const found = new CurveSeries();
  found.append(points.map(([step, time]) => ({ step, time, value: 1 })));
  return found;
}

describe("secondsLeft", () => {
  it("uses the pace of the last minute, not a pause before it", () => {
    const before = [1, 2, 3].map((step): [number, number] => [step, step]);
    const after = [4, 5, 6].map((step): [number, number] => [step, 3600 + step * 2]);
    expect(secondsLeft(series([...before, ...after]), 0, 6, 16)).toBe(20);
  });

  it("counts no time before the ranks began, however short the pause was", () => {
    const before = [1, 2, 3].map((step): [number, number] => [step, step]);
    const resumed = 48;
    const first: [number, number] = [4, 50];
    expect(secondsLeft(series([...before, first]), resumed, 4, 14)).toBeNull();
    expect(secondsLeft(series([...before, first, [6, 51]]), resumed, 6, 16)).toBe(5);
  });

  it("takes the last two points when steps are longer than a minute", () => {
    expect(
      secondsLeft(
        series([
          [1, 0],
          [2, 100],
          [3, 300],
        ]),
        -1,
        3,
        5,
      ),
    ).toBe(400);
  });

  it("is unknown with fewer than two points", () => {
    expect(secondsLeft(series([[1, 1]]), 0, 1, 5)).toBeNull();
    expect(secondsLeft(undefined, 0, 0, 5)).toBeNull();
  });
});
