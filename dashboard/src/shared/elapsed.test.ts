import { expect, test } from "vitest";
import { ranSeconds } from "./elapsed";

const NOW = Date.parse("2026-01-01T01:00:00Z");

test("run time excludes the time between attempts", () => {
  expect(ranSeconds({ ran_seconds: 90, running_since: null }, NOW)).toBe(90);
  expect(ranSeconds({ ran_seconds: 90, running_since: "2026-01-01T00:59:50Z" }, NOW)).toBe(100);
});

test("run time does not shrink if the clock is behind the coordinator's", () => {
  expect(ranSeconds({ ran_seconds: 90, running_since: "2026-01-01T01:00:05Z" }, NOW)).toBe(90);
});
