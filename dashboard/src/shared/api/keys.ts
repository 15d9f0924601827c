/** Query keys, so that a change of one thing renews every view of it. */
export const keys = {
  jobs: ["jobs"] as const,
  foundJobs: (states: readonly string[] | null, search: string) =>
    ["jobs", states, search] as const,
  job: (id: string) => ["job", id] as const,
  attempts: (id: string) => ["job", id, "attempts"] as const,
  gradients: (id: string) => ["job", id, "gradients"] as const,
  gradientStep: (id: string, step: number, attempt: number) =>
    ["job", id, "gradients", step, attempt] as const,
  checkpoints: (id: string) => ["job", id, "checkpoints"] as const,
  loss: (id: string) => ["job", id, "recent loss"] as const,
  lastLine: (id: string) => ["job", id, "last line"] as const,
  nodes: ["nodes"] as const,
  nodeHistory: (id: string, since: string, until: string | null) =>
    ["node history", id, since, until] as const,
  nodeEvents: (id: string) => ["node events", id] as const,
  queue: ["queue"] as const,
  place: (id: string) => ["job", id, "place in the queue"] as const,
  quotas: ["quotas"] as const,
  health: ["health"] as const,
  summary: ["summary"] as const,
};
