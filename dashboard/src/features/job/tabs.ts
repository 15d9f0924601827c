import { isFinished, isRun, type Job } from "@/shared/api/types";

const TABS = [
  "curves",
  "gradients",
  "logs",
  "timeline",
  "checkpoints",
  "outputs",
  "profiles",
  "spec",
] as const;
export type Tab = (typeof TABS)[number];

export function isTab(value: unknown): value is Tab {
  return TABS.includes(value as Tab);
}

/** The tab of a URL, if it names one. */
export function tabOf(value: unknown): { tab?: Tab } {
  return isTab(value) ? { tab: value } : {};
}

/** Whether a job ended before its first step, so that it will have no curves. */
export function endedWithoutStep(job: Pick<Job, "finished_at" | "step">): boolean {
  return isFinished(job) && job.step === 0;
}

/** The tab that a job's page opens on: the one that has something to show. */
export function firstTab(
  job: Pick<Job, "attempt" | "finished_at" | "kind" | "metrics" | "step" | "spec">,
): Tab {
  if (isRun(job)) return "curves";
  if (job.attempt === 0) return "timeline";
  // A script reports metrics only if it uses the SDK.
  if (job.spec?.script) return Object.keys(job.metrics).length > 0 ? "curves" : "logs";
  return endedWithoutStep(job) ? "timeline" : "curves";
}

const OF_RUNS: readonly Tab[] = ["curves", "timeline", "outputs", "spec"];

/** The tabs of a job: gradients of a script are never recorded, and a run has no processes here. */
export function tabsOf(job: Pick<Job, "kind" | "spec">): readonly Tab[] {
  if (isRun(job)) return OF_RUNS;
  return job.spec?.script ? TABS.filter((tab) => tab !== "gradients") : TABS;
}
