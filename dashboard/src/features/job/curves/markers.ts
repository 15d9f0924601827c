import type { JobEvent } from "@/shared/api/types";
import type { Marker } from "@/shared/curves/chart/markers";
import type { CurveStore } from "@/shared/curves/data/store";
import { count } from "@/shared/format";
import { isValidation } from "@/shared/live/metric-names";

/** More would be one bar along the chart. */
const MAX_EVALUATIONS = 200;
const RESIZES = new Set(["resize_requested", "resized", "regrouped", "grew"]);

/** What a job's curves show of its events: saved checkpoints, and every start from one. */
export function markersOf(events: readonly JobEvent[]): Marker[] {
  const markers: Marker[] = [];
  let cause: JobEvent | null = null;
  for (const event of events) {
    const { code, data } = event;
    const time = Date.parse(event.time) / 1000;
    if (data.state === "recovering" || RESIZES.has(code)) cause = event;
    if (code === "checkpoint_saved" && typeof data.step === "number") {
      const label = `checkpoint of step ${count(data.step)}`;
      markers.push({ kind: "checkpoint", step: data.step, time, label });
    }
    if (code !== "rank_started") continue;
    if (typeof data.resumed_from === "number")
      markers.push(startOf(data.resumed_from, time, cause));
    cause = null;
  }
  return markers;
}

function startOf(step: number, time: number, cause: JobEvent | null): Marker {
  if (cause === null) {
    return { kind: "resume", step, time, label: `resumed from step ${count(step)}` };
  }
  const kind = RESIZES.has(cause.code) ? "resize" : "restart";
  return { kind, step, time, label: cause.reason };
}

/** Where a job was evaluated: the steps of its validation metrics. */
export function evaluationsOf(curves: CurveStore): Marker[] {
  const times = new Map<number, number>();
  for (const name of curves.jobWideNames().filter(isValidation)) {
    const { steps = [], times: of = [] } = curves.get(name) ?? {};
    steps.forEach((step, i) => void times.set(step, of[i] ?? 0));
  }
  if (times.size > MAX_EVALUATIONS) return [];
  return [...times].map(([step, time]) => ({
    kind: "evaluation",
    step,
    time,
    label: `evaluated at step ${count(step)}`,
  }));
}
