import { describe, expect, it } from "vitest";
import type { Points } from "./curve";
import { meanOf, spreadOf } from "./spread";

const points = (at: number[], values: (number | null)[]): Points => ({
  at,
  values,
  mins: values,
  maxs: values,
});

describe("meanOf", () => {
  const one = points([1, 2, 3], [4, 2, 1]);
  const two = points([1, 2, 3], [6, 4, 3]);

  it("has a band from the least to the greatest, or of a deviation", () => {
    const range = meanOf([one, two, points([1, 2, 3], [5, 0, 8])], "range");
    expect(range).toEqual({ at: [1, 2, 3], values: [5, 2, 4], mins: [4, 0, 1], maxs: [6, 4, 8] });
    const deviation = meanOf([one, two], "deviation");
    expect(deviation.values).toEqual([5, 3, 2]);
    expect(deviation.maxs[0]).toBeCloseTo(5 + Math.SQRT2);
  });

  it("takes the runs that have begun and not ended", () => {
    const late = points([2, 4], [10, 20]);
    expect(meanOf([one, late], "range")).toMatchObject({
      at: [1, 2, 3, 4],
      values: [4, 6, 5.5, 20],
      maxs: [4, 10, 10, 20],
    });
  });

  it("has a gap where a run diverged", () => {
    expect(meanOf([one, points([1, 2, 3], [4, null, 1])], "range").values).toEqual([4, null, 1]);
  });

  it("keeps the last position of many", () => {
    const at = Array.from({ length: 4000 }, (_, i) => i + 1);
    const mean = meanOf([points(at, at)], "range");
    expect(mean.at.length).toBeLessThanOrEqual(1500);
    expect(mean.at.at(-1)).toBe(4000);
    expect(mean.values.at(-1)).toBe(4000);
  });
});

it("a spread needs all values", () => {
  expect(spreadOf([1, null])).toBeNull();
  expect(spreadOf([1, 3])).toEqual({ mean: 2, deviation: Math.SQRT2 });
});
