import { describe, expect, it } from "vitest";
import { added, MOST_JOBS, placesOf, removed, textOf } from "./places";

describe("places", () => {
  it("keep their jobs when one is taken out, also over an address", () => {
    const left = removed(placesOf("a,b,c"), "b");
    expect(textOf(left)).toBe("a,,c");
    expect(placesOf("a,,c")).toEqual(["a", null, "c"]);
    expect(textOf(added(left, "d"))).toBe("a,d,c");
    expect(textOf(removed(left, "c"))).toBe("a");
  });

  it("hold each job once, and no more than can be told apart", () => {
    expect(placesOf("a, a ,b")).toEqual(["a", null, "b"]);
    expect(placesOf(undefined)).toEqual([]);
    const many = Array.from({ length: 30 }, (_, i) => `j${i}`);
    expect(placesOf(many.join(","))).toHaveLength(MOST_JOBS);
    expect(added(placesOf(many.join(",")), "one more")).toHaveLength(MOST_JOBS);
  });
});
