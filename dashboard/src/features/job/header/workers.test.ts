import { describe, expect, it } from "vitest";
import { isRange, rangeText, requestedWorkers, resizeRequest } from "./workers";

describe("the workers of a job", () => {
  it("are those of its spec, fixed or elastic", () => {
    expect(requestedWorkers({ spec: { resources: { workers: 4 } }, world_size: 2 })).toEqual({
      min: 4,
      max: 4,
    });
    const elastic = { resources: { min_workers: 2, max_workers: 8 } };
    expect(requestedWorkers({ spec: elastic, world_size: 3 })).toEqual({ min: 2, max: 8 });
    expect(requestedWorkers({ spec: {}, world_size: 3 })).toEqual({ min: 3, max: 3 });
  });

  it("are requested as one number or as two", () => {
    expect(resizeRequest({ min: 4, max: 4 })).toEqual({ workers: 4 });
    expect(resizeRequest({ min: 2, max: 8 })).toEqual({ min_workers: 2, max_workers: 8 });
    expect(rangeText({ min: 1, max: 1 })).toBe("1 worker");
    expect(rangeText({ min: 2, max: 8 })).toBe("2 to 8 workers");
  });

  it("are a range only if min is not above max", () => {
    expect(isRange({ min: 2, max: 2 })).toBe(true);
    expect(isRange({ min: 3, max: 2 })).toBe(false);
    expect(isRange({ min: 0, max: 2 })).toBe(false);
    expect(isRange({ min: "", max: 2 })).toBe(false);
  });
});
