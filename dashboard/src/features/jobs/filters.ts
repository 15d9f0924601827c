/** Filters by state; the name of each is in the URL (`?show=active`). */
export const FILTERS = {
  all: { label: "All", states: null },
  active: {
    label: "Active",
    states: ["starting", "running", "pausing", "recovering", "cancelling"],
  },
  waiting: { label: "Waiting", states: ["queued"] },
  paused: { label: "Paused", states: ["paused"] },
  completed: { label: "Completed", states: ["completed"] },
  failed: { label: "Failed", states: ["failed"] },
  cancelled: { label: "Cancelled", states: ["cancelled"] },
} as const satisfies Record<string, { label: string; states: readonly string[] | null }>;

export type Filter = keyof typeof FILTERS;

export function isFilter(value: unknown): value is Filter {
  return typeof value === "string" && Object.hasOwn(FILTERS, value);
}

/** How many jobs a filter has, by the cluster's count of every state. */
export function counted(show: Filter, counts: Record<string, number>): number {
  const states: readonly string[] = FILTERS[show].states ?? Object.keys(counts);
  return states.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
}
