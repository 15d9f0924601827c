/** The API's types under the names that the pages use. */
export type {
  AnnouncedNode,
  Attempt,
  Checkpoint,
  Device,
  DeviceHistory,
  DryRun,
  Event as JobEvent,
  GradientEntry,
  GradientHistogram,
  GradientHistory,
  GradientStep,
  Gradients,
  Job,
  LogLine,
  Node as ClusterNode,
  NodeEvent,
  Outlook,
  Point,
  QueueEntry,
  QueuePage,
  Quota,
  QuotaPage,
  Remark,
  SeriesOut as Series,
  Summary,
} from "@/client";

export const JOB_STATES = [
  "queued",
  "starting",
  "running",
  "pausing",
  "paused",
  "recovering",
  "cancelling",
  "completed",
  "failed",
  "cancelled",
] as const;
export type JobState = (typeof JOB_STATES)[number];

const FINAL = new Set<string>(["completed", "failed", "cancelled"]);

export function isFinal(state: string): boolean {
  return FINAL.has(state);
}

/** Whether a job's reason says more than the word of its state. */
export function tellsMore({ state, reason }: { state: string; reason: string }): boolean {
  return reason !== "" && reason !== state;
}

/** States in which ranks may be at work, so that numbers change by themselves. */
export function isActive(state: string): boolean {
  return !isFinal(state) && state !== "paused" && state !== "queued";
}

export function canPause(state: string): boolean {
  return ["queued", "starting", "running", "recovering"].includes(state);
}

export function canResume(state: string): boolean {
  return state === "paused";
}

/** Why a job cannot be given another number of workers; null: it can. */
export function whyNoResize(state: string): string | null {
  if (isFinal(state)) {
    return `It is ${state}; restore one of its checkpoints with another number of workers instead`;
  }
  return state === "cancelling" ? "It is being cancelled" : null;
}

export function canCancel(state: string): boolean {
  return !isFinal(state) && state !== "cancelling";
}
