import { expect, it } from "vitest";
import type { JobEvent } from "@/shared/api/types";
import { markersOf } from "./markers";

function event(code: string, data: Record<string, unknown>, reason = ""): JobEvent {
  return { code, data, reason, time: "2026-01-01T00:00:10Z" } as unknown as JobEvent;
}

it("curves show checkpoints, and starts from one with their causes", () => {
  const start = (step: number | null) => event("rank_started", { resumed_from: step });
  const markers = markersOf([
    start(null),
    event("checkpoint_saved", { step: 1000 }),
    event("restarting", { state: "recovering" }, "rank 3 failed; restart 1 of 3"),
    start(1000),
    event("resized", {}, "resized by a user; 2 ranks → 4"),
    start(1200),
    event("paused", { state: "paused" }),
    start(1300),
  ]);
  expect(markers.map(({ kind, step, label }) => [kind, step, label])).toEqual([
    ["checkpoint", 1000, "checkpoint of step 1,000"],
    ["restart", 1000, "rank 3 failed; restart 1 of 3"],
    ["resize", 1200, "resized by a user; 2 ranks → 4"],
    ["resume", 1300, "resumed from step 1,300"],
  ]);
  expect(markers[0]?.time).toBe(Date.parse("2026-01-01T00:00:10Z") / 1000);
});
