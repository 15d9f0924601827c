import { describe, expect, it } from "vitest";
import { asked, fromTo, isRange, wish } from "./workers";

describe("the workers of a job", () => {
  it("are what its spec asks for, fixed or elastic", () => {
    expect(asked({ spec: { resources: { workers: 4 } }, world_size: 2 })).toEqual({
      least: 4,
      most: 4,
    });
    const elastic = { resources: { min_workers: 2, max_workers: 8 } };
    expect(asked({ spec: elastic, world_size: 3 })).toEqual({ least: 2, most: 8 });
    expect(asked({ spec: {}, world_size: 3 })).toEqual({ least: 3, most: 3 });
  });

  it("are asked for as one number or as two", () => {
    expect(wish({ least: 4, most: 4 })).toEqual({ workers: 4 });
    expect(wish({ least: 2, most: 8 })).toEqual({ min_workers: 2, max_workers: 8 });
    expect(fromTo({ least: 1, most: 1 })).toBe("1 worker");
    expect(fromTo({ least: 2, most: 8 })).toBe("2 to 8 workers");
  });

  it("are a range only if the first is not above the second", () => {
    expect(isRange({ least: 2, most: 2 })).toBe(true);
    expect(isRange({ least: 3, most: 2 })).toBe(false);
    expect(isRange({ least: 0, most: 2 })).toBe(false);
    expect(isRange({ least: "", most: 2 })).toBe(false);
  });
});
