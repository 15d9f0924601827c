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

it("says which layer explodes, which is dead, and which holds NaN", () => {
  const rows = rowsOf(
    history({
      sound: [1, 1.2, 0.9, 1.1],
      exploding: [1, 1, 1, 40],
      dead: [0.1, 0, 0, 0],
      vanishing: [0.1, 0.1, 0.1, 1e-9],
      broken: [1, 1, 1, "NaN"],
      gone: [1, 1, 1, null],
    }),
  );
  expect(rows.map(({ name, remark }) => [name, remark])).toEqual([
    ["sound", null],
    ["exploding", "exploding"],
    ["dead", "dead"],
    ["vanishing", "vanishing"],
    ["broken", "not finite"],
    ["gone", null],
  ]);
});

it("calls nothing exploding before it knows what is usual", () => {
  expect(rowsOf(history({ a: [1, 1, 40] }))[0]?.remark).toBeNull();
});

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
