import { describe, expect, it } from "vitest";
import { MAX_COMPARED } from "@/shared/api/types";
import { added, formatSlots, parseSlots, removed } from "./slots";

describe("slots", () => {
  it("keep their jobs when one is removed, also in the URL", () => {
    const left = removed(parseSlots("a,b,c"), "b");
    expect(formatSlots(left)).toBe("a,,c");
    expect(parseSlots("a,,c")).toEqual(["a", null, "c"]);
    expect(formatSlots(added(left, "d"))).toBe("a,d,c");
    expect(formatSlots(removed(left, "c"))).toBe("a");
  });

  it("hold each job once, up to the limit", () => {
    expect(parseSlots("a, a ,b")).toEqual(["a", null, "b"]);
    expect(parseSlots(undefined)).toEqual([]);
    const many = Array.from({ length: 30 }, (_, i) => `j${i}`);
    expect(parseSlots(many.join(","))).toHaveLength(MAX_COMPARED);
    expect(added(parseSlots(many.join(",")), "one more")).toHaveLength(MAX_COMPARED);
  });
});
