import { expect, it } from "vitest";
import { CurveStore } from "@/shared/curves/data/store";
import { background, rankHeat, rankMetrics } from "./rank-heat";

it("ranks are compared over ranges of steps", () => {
  const curves = new CurveStore();
  const fill = (rank: number | null, steps: number, value: (step: number) => number | null) =>
    curves.append(
      "step_seconds",
      rank,
      Array.from({ length: steps }, (_, i) => ({ step: i + 1, time: i, value: value(i + 1) })),
    );
  fill(null, 120, () => 9);
  fill(0, 120, () => 1);
  fill(1, 120, (step) => (step > 60 ? 3 : 1));
  fill(10, 60, () => 2);
  curves.append("loss", 0, [{ step: 1, time: 1, value: 1 }]);
  expect(rankMetrics(curves)).toEqual(["step_seconds"]);
  const heat = rankHeat(curves, "step_seconds");
  expect(heat).toMatchObject({ first: 1, last: 120, low: 1, high: 3 });
  expect(heat?.rows.map(({ rank, mean }) => [rank, mean])).toEqual([
    [0, 1],
    [1, 2],
    [10, 2],
  ]);
  expect(heat?.rows[1]?.cells).toEqual([...Array(30).fill(1), ...Array(30).fill(3)]);
  expect(heat?.rows[2]?.cells.slice(29, 31)).toEqual([2, null]);
  expect(rankHeat(curves, "none")).toBeNull();
});

it("colours go from the lowest to the highest value", () => {
  const color = (share: number) =>
    `color-mix(in oklab, var(--heat-high) ${share}%, var(--heat-low))`;
  expect(background([1, null, 9, 2], 1, 3)).toBe(
    `linear-gradient(to right, ${color(0)} 0.00% 25.00%, transparent 25.00% 50.00%, ${color(100)} 50.00% 75.00%, ${color(50)} 75.00% 100.00%)`,
  );
  expect(background([5], 5, 5)).toContain(color(0));
});
