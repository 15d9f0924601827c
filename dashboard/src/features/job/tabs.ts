export const TABS = ["curves", "logs", "timeline", "checkpoints", "spec"] as const;
export type Tab = (typeof TABS)[number];

export function isTab(value: unknown): value is Tab {
  return TABS.includes(value as Tab);
}

/** What an address says about the tab; nothing when it names none. */
export function tabOf(value: unknown): { tab?: Tab } {
  return isTab(value) ? { tab: value } : {};
}

/** Where a job's page opens: a script reports nothing unless it uses the SDK, but it prints. */
export function firstTab(job: { spec: Record<string, unknown> }): Tab {
  return job.spec.script ? "logs" : "curves";
}
