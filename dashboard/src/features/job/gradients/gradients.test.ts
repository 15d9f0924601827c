import { expect, it } from "vitest";
import type { GradientHistory } from "@/shared/api/types";
import { barsOf, magnitudes, ordered, rowsOf } from "./gradients";

function history(norms: Record<string, (number | string | null)[]>): GradientHistory {
  const names = Object.keys(norms);
  const number = Object.values(norms)[0]?.length ?? 0;
  return {
    asked: 0,
    answered: 0,
    names,
    remarks: names.map(() => null),
    steps: Array.from({ length: number }, (_, i) => ({
      attempt: 1,
      step: 10 * (i + 1),
      time: "2026-01-01T00:00:00Z",
      request: 0,
      has_histograms: false,
      norms: names.map((name) => norms[name]?.[i] ?? null),
      largest: names.map(() => 1),
    })),
  };
}

it("orders by the newest norm, what is not finite first of the large", () => {
  const rows = rowsOf(history({ a: [2], b: ["NaN"], c: [3] }));
  const names = (order: "model" | "largest" | "smallest") =>
    ordered(rows, order).map(({ name }) => name);
  expect(names("model")).toEqual(["a", "b", "c"]);
  expect(names("largest")).toEqual(["b", "c", "a"]);
  expect(names("smallest")).toEqual(["a", "c", "b"]);
});

it("draws magnitudes, and bars of powers of two", () => {
  expect(magnitudes([100, null, 0, 0.1])).toEqual([2, null, null, -1]);
  expect(barsOf({ first: 46, counts: [1, 4], zeros: 0, not_finite: 0 }, -48)).toEqual([
    { from: 0.25, count: 1, share: 0.25 },
    { from: 0.5, count: 4, share: 1 },
  ]);
});
