import { describe, expect, it } from "vitest";
import { curveView, rangeOf } from "./view";

describe("curveView", () => {
  it("takes valid values and drops the rest", () => {
    const good = {
      x: "elapsed",
      smooth: 0.6,
      log: true,
      from: 5,
      to: 9,
      ranks: true,
      charts: "^val",
    };
    expect(curveView({ ...good, other: 1 })).toEqual(good);
    expect(curveView({ x: "step", smooth: 2, log: "yes", from: 9, to: 5, ranks: 0 })).toEqual({});
    expect(curveView({ x: "metrics.val/loss" })).toEqual({ x: "metrics.val/loss" });
    expect(curveView({ x: "metrics." })).toEqual({});
    expect(curveView({ from: Number.NaN, to: 5 })).toEqual({});
  });

  it("zooms only between two ends", () => {
    expect(rangeOf({ from: 1, to: 2 })).toEqual({ from: 1, to: 2 });
    expect(rangeOf({ from: 1 })).toBeNull();
  });
});
