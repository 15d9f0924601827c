import { expect, it } from "vitest";
import { STEP_TICKS } from "@/shared/curves/chart/ticks";
import { optionsOf, xRange } from "./options";

it("an axis of trials has no number below 1, nor one beside a single trial", () => {
  const axis = { kind: "whole", label: "trial" } as const;
  expect(xRange(axis, 1, 1)).toEqual([0.5, 1.5]);
  expect(xRange(axis, 1, 12)).toEqual([0.5, 12.5]);
});

it("an axis of whole numbers has no tick between them", () => {
  const incrsOf = (...xs: number[]) =>
    optionsOf(
      {
        axis: { kind: "linear", label: "workers" },
        points: xs.map((x) => ({ id: 1, x, y: 0.5, label: "" })),
        groups: [{ label: "completed", look: { color: "red" } }],
      },
      false,
      400,
    ).axes?.map(({ incrs }) => incrs);
  expect(incrsOf(1, 2, 4)).toEqual([STEP_TICKS, undefined]);
  expect(incrsOf(1, 2.5)).toEqual([undefined, undefined]);
});

it("groups of points differ in their shapes", () => {
  const shapes = ["dot", "ring", "cross"] as const;
  const { series } = optionsOf(
    {
      axis: { kind: "whole", label: "trial" },
      points: [],
      groups: shapes.map((shape) => ({ label: shape, look: { color: "red", shape } })),
    },
    false,
    400,
  );
  const fills = series.slice(2).map(({ points }) => points?.fill);
  expect(fills).toEqual(["red", "transparent", "transparent"]);
  expect(series.slice(2).map(({ points }) => points?.paths !== undefined)).toEqual([
    false,
    true,
    true,
  ]);
});
