import { describe, expect, it } from "vitest";
import { specDifferences } from "./spec-diff";

const marked = (text: string) => [{ text, differs: true }];

describe("specDifferences", () => {
  it("has only the keys that differ, one value per spec", () => {
    const spec = (rate: number, hidden: number[]) => ({
      name: `rate-${rate}`,
      task: { name: "digits", params: { hidden } },
      training: { learning_rate: rate, seed: 1 },
    });
    expect(specDifferences([spec(0.1, [64]), spec(0.1, [128]), spec(0.2, [64])])).toEqual([
      { key: "task.params.hidden", values: [marked("64"), marked("128"), marked("64")] },
      { key: "training.learning_rate", values: ["0.1", "0.1", "0.2"] },
    ]);
  });

  it("marks the elements in which lists differ", () => {
    const marksOf = (...lists: unknown[][]) =>
      specDifferences(lists.map((args) => ({ script: { args } }))).flatMap(({ values }) =>
        values.map((value) =>
          Array.isArray(value) ? value.filter((e) => e.differs).map((e) => e.text) : value,
        ),
      );
    expect(marksOf(["--lr", "0.1", "-v"], ["--lr", "0.2", "-v"])).toEqual([['"0.1"'], ['"0.2"']]);
    // What one has more does not shift the others.
    expect(marksOf(["--lr", "1"], ["--seed", "3", "--lr", "1"])).toEqual([[], ['"--seed"', '"3"']]);
    expect(marksOf([64, 64], [64, 32])).toEqual([["64"], ["32"]]);
    expect(marksOf(["a", "b", "c"], ["a", "c", "b"])).toEqual([
      ['"b"', '"c"'],
      ['"c"', '"b"'],
    ]);
  });

  it("marks nothing where only one has a list", () => {
    const [difference] = specDifferences([{ script: { args: ["-v"] } }, { script: {} }]);
    expect(difference?.values).toEqual([[{ text: '"-v"', differs: false }], null]);
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
