import { expect, test } from "vitest";
import { ranSeconds } from "./elapsed";

const NOW = Date.parse("2026-01-01T01:00:00Z");

test("a job runs while its attempts do, and not between them", () => {
  expect(ranSeconds({ ran_seconds: 90, running_since: null }, NOW)).toBe(90);
  expect(ranSeconds({ ran_seconds: 90, running_since: "2026-01-01T00:59:50Z" }, NOW)).toBe(100);
});

test("a clock that is behind the coordinator's takes nothing away", () => {
  expect(ranSeconds({ ran_seconds: 90, running_since: "2026-01-01T01:00:05Z" }, NOW)).toBe(90);
});
