import { describe, expect, it } from "vitest";
import { specDifferences } from "./spec-diff";

describe("specDifferences", () => {
  it("has only the keys that differ, one value per spec", () => {
    const spec = (rate: number, hidden: number[]) => ({
      name: `rate-${rate}`,
      task: { name: "digits", params: { hidden } },
      training: { learning_rate: rate, seed: 1 },
    });
    expect(specDifferences([spec(0.1, [64]), spec(0.1, [128]), spec(0.2, [64])])).toEqual([
      { key: "task.params.hidden", values: ["[64]", "[128]", "[64]"] },
      { key: "training.learning_rate", values: ["0.1", "0.1", "0.2"] },
    ]);
  });

  it("treats null like a missing key", () => {
    const [difference] = specDifferences([
      { script: { path: "a.py" }, task: null },
      { script: null },
    ]);
    expect(difference).toEqual({ key: "script.path", values: ["a.py", null] });
    expect(specDifferences([{ task: null }, {}])).toEqual([]);
  });

  it("is empty for one spec or equal ones", () => {
    expect(specDifferences([{ a: 1 }])).toEqual([]);
    expect(specDifferences([{ a: { b: "1" } }, { a: { b: "1" } }])).toEqual([]);
  });
});
