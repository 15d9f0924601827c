import type { Attempt } from "@/shared/api/types";
import { count, duration } from "@/shared/format";

export type Incident = Attempt["timeline"][number];

/** A part of the way from a failure back to the next step. */
export interface Stage {
  label: string;
  text: string;
}

/** What is known of how long each part took, in the order in which they happened. */
export function stagesOf(incident: Incident): Stage[] {
  const parts: [label: string, seconds: number | null][] = [
    ["to detect", incident.detect_seconds],
    ["to regroup", incident.regroup_seconds],
    ["to load", incident.load_seconds],
    ["to the next step", incident.step_seconds],
    ["altogether", incident.total_seconds],
  ];
  const stages = parts.flatMap(([label, seconds]) =>
    seconds === null ? [] : [{ label, text: duration(seconds) }],
  );
  const redone = incident.steps_redone;
  if (redone === null) return stages;
  return [
    ...stages,
    { label: redone === 1 ? "step done again" : "steps done again", text: count(redone) },
  ];
}

/** "out_of_memory" as it is said: "out of memory". */
export function causeOf({ cause = "unknown" }: Incident["failure"]): string {
  return cause.replaceAll("_", " ");
}
