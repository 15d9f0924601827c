import type { Job } from "@/client";

/** The API's types under the names that the pages use. */
export type {
  Alert,
  Analysis,
  Attempt,
  BenchmarkRow,
  Checkpoint,
  Delivery,
  Device,
  DeviceHistory,
  DryRun,
  Event as JobEvent,
  Experiment,
  ExperimentPlan,
  GradientEntry,
  GradientHistogram,
  GradientHistory,
  GradientStep,
  Gradients,
  Job,
  JobPackages,
  LogLine,
  Node as ClusterNode,
  NodeEvent,
  Outlook,
  Point,
  Provenance,
  QueueEntry,
  QueuePage,
  Quota,
  QuotaPage,
  RegisteredNode,
  Remark,
  Report,
  Role,
  ScalingCurve,
  ScalingPoint,
  SeriesOut as Series,
  Summary,
  Trial,
} from "@/client";

/** Most jobs whose curves one chart shows: of more, people cannot distinguish the colours. */
export const MAX_COMPARED = 16;

/** Whether a job's reason says more than the word of its state. */
export function hasReason({ state, reason }: { state: string; reason: string }): boolean {
  return reason !== "" && reason !== state;
}

export function isFinished(job: Pick<Job, "finished_at">): boolean {
  return job.finished_at !== null;
}

/** Whether a job runs elsewhere, and is only logged here. */
export function isRun(job: Pick<Job, "kind">): boolean {
  return job.kind === "run";
}

/** Whether ranks may be at work, so that metrics and logs change without a command. */
export function isActive(job: Pick<Job, "running_since">): boolean {
  return job.running_since !== null;
}

/** In place of the name of a job that the reader may not see. */
export const FOREIGN_JOB = "a job of another project";
