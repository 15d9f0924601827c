import { expect, it } from "vitest";
import { runsOf } from "./runs";

it("runs that were stopped early are part of the progress", () => {
  const counts = { completed: 1, stopped: 6, failed: 1, paused: 1, running: 1 };
  expect(runsOf({ counts })).toEqual({
    total: 10,
    completed: 1,
    percent: 70,
    others: "1 running, 1 paused, 6 stopped, 1 failed",
  });
  expect(runsOf({ counts: {} }).percent).toBe(0);
});
