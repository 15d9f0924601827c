import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { direction, firstSort, NEWEST_FIRST, nextSort } from "./sort";

const jobs = (...names: (string | null)[]) =>
  names.map((name) => ({ main_metric: name && { name } }) as unknown as Job);

it("a header sorts one way, then the other", () => {
  expect(nextSort("name", NEWEST_FIRST)).toBe("name");
  expect(nextSort("name", "name")).toBe("-name");
  expect(nextSort("name", "-name")).toBe("name");
  expect(nextSort("-step", "-step")).toBe("step");
  expect(direction("-step", "step")).toBe("ascending");
  expect(direction("-step", "-step")).toBe("descending");
  expect(direction("-step", "name")).toBe("none");
});

it("a list is sorted by the main metric that its jobs share", () => {
  expect(firstSort("metric", jobs("val/f1", null, "val/f1"), NEWEST_FIRST)).toBe("-metrics.val/f1");
  expect(firstSort("metric", jobs("val/f1", "loss"), NEWEST_FIRST)).toBeUndefined();
  expect(firstSort("metric", jobs(null), NEWEST_FIRST)).toBeUndefined();
  expect(firstSort("metric", jobs("val/f1", "loss"), "metrics.loss")).toBe("-metrics.loss");
  expect(firstSort("commands", [], NEWEST_FIRST)).toBeUndefined();
});
