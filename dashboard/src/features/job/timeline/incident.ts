import type { Attempt } from "@/shared/api/types";
import { count, duration } from "@/shared/format";

export type Incident = Attempt["timeline"][number];

/** A stage of the recovery, from the failure to the next step. */
interface Stage {
  label: string;
  text: string;
}

/** The known durations of the stages, in order. */
export function stagesOf(incident: Incident): Stage[] {
  const durations: [label: string, seconds: number | null][] = [
    ["Detected in", incident.detect_seconds],
    ["Regrouped in", incident.regroup_seconds],
    ["Loaded in", incident.load_seconds],
    ["Next step after", incident.step_seconds],
    ["Total", incident.total_seconds],
  ];
  const stages = durations.flatMap(([label, seconds]) =>
    seconds === null ? [] : [{ label, text: duration(seconds) }],
  );
  const redone = incident.steps_redone;
  if (redone === null) return stages;
  return [...stages, { label: "Steps repeated", text: count(redone) }];
}

/** "out_of_memory" → "out of memory". */
export function causeOf({ cause = "unknown" }: Incident["failure"]): string {
  return cause.replaceAll("_", " ");
}
