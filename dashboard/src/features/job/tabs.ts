export const TABS = ["curves", "logs", "events", "checkpoints", "attempts", "spec"] as const;
export type Tab = (typeof TABS)[number];

export function isTab(value: unknown): value is Tab {
  return TABS.includes(value as Tab);
}
