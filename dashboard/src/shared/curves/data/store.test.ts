import { describe, expect, it } from "vitest";
import { MAX_SAMPLES, type Sample } from "./series";
import { CurveStore, MAX_POINTS } from "./store";

const run = (from: number, to: number): Sample[] =>
  Array.from({ length: to - from + 1 }, (_, i) => ({ step: from + i, time: i, value: from + i }));

describe("CurveStore", () => {
  it("bounds the points of all series, however many ranks there are", () => {
    const store = new CurveStore();
    const ranks = 4 * Math.ceil(MAX_POINTS / MAX_SAMPLES);
    for (let rank = 0; rank < ranks; rank++) store.append("step_seconds", rank, run(1, 1000));
    // The first series were filled before the others existed.
    for (let rank = 0; rank < ranks; rank++) store.append("step_seconds", rank, run(1001, 1010));
    const held = Array.from({ length: ranks }, (_, rank) => store.get("step_seconds", rank));
    const sum = held.reduce((all, series) => all + (series?.length ?? 0), 0);
    expect(sum).toBeLessThanOrEqual(MAX_POINTS);
    for (const series of held) {
      expect(series?.last?.step).toBe(1010);
      expect(series?.mins[0]).toBe(1);
      expect(series?.length).toBeGreaterThan(100);
    }
  });

  it("keeps full resolution with few series", () => {
    const store = new CurveStore();
    store.append("loss", null, run(1, MAX_SAMPLES));
    expect(store.get("loss")?.length).toBe(MAX_SAMPLES);
  });
});
