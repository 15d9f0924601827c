import { expect, it } from "vitest";
import { xRange } from "./scatter-options";

it("an axis of trials has no number below 1, nor one beside a single trial", () => {
  const axis = { kind: "whole", label: "trial" } as const;
  expect(xRange(axis, 1, 1)).toEqual([0.5, 1.5]);
  expect(xRange(axis, 1, 12)).toEqual([0.5, 12.5]);
});
