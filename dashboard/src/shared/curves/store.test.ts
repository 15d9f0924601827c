import { describe, expect, it } from "vitest";
import { MAX_SAMPLES, type Sample } from "./series";
import { CurveStore, MAX_IN_ALL } from "./store";

const run = (from: number, to: number): Sample[] =>
  Array.from({ length: to - from + 1 }, (_, i) => ({ step: from + i, time: i, value: from + i }));

describe("CurveStore", () => {
  it("holds no more points in all than it may, however many ranks there are", () => {
    const store = new CurveStore();
    const ranks = 4 * Math.ceil(MAX_IN_ALL / MAX_SAMPLES);
    for (let rank = 0; rank < ranks; rank++) store.append("step_seconds", rank, run(1, 1000));
    // The first ones were filled when they were alone.
    for (let rank = 0; rank < ranks; rank++) store.append("step_seconds", rank, run(1001, 1010));
    const held = Array.from({ length: ranks }, (_, rank) => store.get("step_seconds", rank));
    const sum = held.reduce((all, series) => all + (series?.length ?? 0), 0);
    expect(sum).toBeLessThanOrEqual(MAX_IN_ALL);
    for (const series of held) {
      expect(series?.last?.step).toBe(1010);
      expect(series?.mins[0]).toBe(1);
      expect(series?.length).toBeGreaterThan(100);
    }
  });

  it("gives few series as many points as a chart can show", () => {
    const store = new CurveStore();
    store.append("loss", null, run(1, MAX_SAMPLES));
    expect(store.get("loss")?.length).toBe(MAX_SAMPLES);
  });
});
