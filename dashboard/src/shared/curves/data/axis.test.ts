import { describe, expect, it } from "vitest";
import { extentOf, stepsWithin } from "./axis";
import { CurveSeries } from "./series";

function series(): CurveSeries {
  const made = new CurveSeries();
  made.append([10, 20, 30, 40].map((step) => ({ step, time: 1000 + step, value: 1 })));
  return made;
}

describe("stepsWithin", () => {
  it("is the range itself over steps, as integers", () => {
    expect(stepsWithin({ from: 1.2, to: 9.8 }, "step", undefined, 0)).toEqual({
      first: 2,
      last: 9,
    });
  });

  it("includes the points around the range of a coarse series", () => {
    const clock = { from: 1015, to: 1025 };
    expect(stepsWithin(clock, "time", series(), 0)).toEqual({ first: 10, last: 30 });
    const elapsed = { from: 15, to: 100 };
    expect(stepsWithin(elapsed, "elapsed", series(), 1000)).toEqual({ first: 10, last: 40 });
  });

  it("reads the steps of a metric's values off its series", () => {
    const tokens = new CurveSeries();
    tokens.append([1, 2, 3, 4, 5].map((step) => ({ step, time: step, value: 100 * step })));
    const shown = (from: number, to: number) =>
      stepsWithin({ from, to }, "metrics.tokens", tokens, 0);
    expect(shown(250, 350)).toEqual({ first: 2, last: 4 });
    expect(shown(100, 500)).toEqual({ first: 1, last: 5 });
    expect(shown(110, 120)).toBeNull();
  });

  it("is null without points", () => {
    expect(stepsWithin({ from: 0, to: 1 }, "time", new CurveSeries(), 0)).toBeNull();
  });
});

describe("extentOf", () => {
  it("spans the first position to the last", () => {
    expect(extentOf([25, 200, 375], "step")).toEqual({ from: 25, to: 375 });
  });

  it("stays close to a single point", () => {
    expect(extentOf([375], "step")).toEqual({ from: 374, to: 376 });
    expect(extentOf([1_800_000_000], "time")).toEqual({ from: 1_799_999_970, to: 1_800_000_030 });
    expect(extentOf([-20], "metrics.loss")).toEqual({ from: -22, to: -18 });
    expect(extentOf([12], "elapsed")).toEqual({ from: -18, to: 42 });
  });

  it("has a default without points", () => {
    expect(extentOf([], "time")).toEqual({ from: 0, to: 1 });
  });
});
