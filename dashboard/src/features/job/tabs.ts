import { isFinal, type Job } from "@/shared/api/types";

export const TABS = ["curves", "gradients", "logs", "timeline", "checkpoints", "spec"] as const;
export type Tab = (typeof TABS)[number];

export function isTab(value: unknown): value is Tab {
  return TABS.includes(value as Tab);
}

/** What an address says about the tab; nothing when it names none. */
export function tabOf(value: unknown): { tab?: Tab } {
  return isTab(value) ? { tab: value } : {};
}

/** Whether a job ended before its first step: then there will be no curves. */
export function endedWithoutStep({ state, step }: Pick<Job, "state" | "step">): boolean {
  return isFinal(state) && step === 0;
}

/** Where a job's page opens: a script reports nothing unless it uses the SDK, but it prints. */
export function firstTab(job: Pick<Job, "state" | "step" | "spec">): Tab {
  if (job.spec.script) return "logs";
  return endedWithoutStep(job) ? "timeline" : "curves";
}
