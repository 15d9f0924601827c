import { describe, expect, it } from "vitest";
import { isNarrow, ownerParameters, ownerTerms, scopeOf } from "./scope";

describe("a scope", () => {
  it("is read from a URL, without what is none", () => {
    expect(scopeOf({ mine: true, project: "vision" })).toEqual({ mine: true, project: "vision" });
    expect(scopeOf({ project: 7 })).toEqual({ project: "7" });
    for (const raw of [{}, { mine: "yes" }, { project: "" }, { project: ["a"] }]) {
      expect(scopeOf(raw)).toEqual({});
    }
  });

  it("is the terms of a query, or parameters", () => {
    expect(ownerTerms({})).toBe("");
    expect(ownerTerms({ mine: true, project: 'a "b" \\c' })).toBe(
      'user=me project="a \\"b\\" \\\\c"',
    );
    expect(ownerParameters({ mine: true })).toEqual({ user: "me", project: undefined });
    expect([isNarrow({}), isNarrow({ mine: true }), isNarrow({ project: "a" })]).toEqual([
      false,
      true,
      true,
    ]);
  });
});
