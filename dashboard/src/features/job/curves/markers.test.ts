import { expect, it } from "vitest";
import type { JobEvent } from "@/shared/api/types";
import { CurveStore } from "@/shared/curves/data/store";
import { evaluationsOf, markersOf } from "./markers";

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

it("curves show the steps of validation metrics, each once", () => {
  const curves = new CurveStore();
  const at = (...steps: number[]) => steps.map((step) => ({ step, time: 10 * step, value: 1 }));
  curves.append("loss", null, at(1, 2, 3, 4));
  curves.append("eval_loss", null, at(2, 4));
  curves.append("val/f1", null, at(4));
  expect(evaluationsOf(curves).map(({ step, time, label }) => [step, time, label])).toEqual([
    [2, 20, "evaluated at step 2"],
    [4, 40, "evaluated at step 4"],
  ]);
  curves.append("eval_loss", null, at(...Array.from({ length: 300 }, (_, i) => i + 5)));
  expect(evaluationsOf(curves)).toEqual([]);
});
