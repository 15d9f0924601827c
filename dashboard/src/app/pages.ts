/** The pages of the main navigation; `scoped`: lists that are reduced to the chosen scope. */
export const MAIN_PAGES = [
  { label: "Jobs", to: "/jobs", scoped: true },
  { label: "Experiments", to: "/experiments", scoped: true },
  { label: "Reports", to: "/reports", scoped: true },
  { label: "Queue", to: "/queue", scoped: true },
  { label: "Nodes", to: "/nodes" },
  { label: "Ledger", to: "/ledger" },
  { label: "Alerts", to: "/alerts" },
  { label: "New job", to: "/new" },
] as const;

/** Those that the palette goes to. */
export const PAGES = [
  ...MAIN_PAGES,
  { label: "Compare", to: "/compare" },
  { label: "What if", to: "/what-if" },
  { label: "New experiment", to: "/experiments/new" },
  { label: "New report", to: "/reports/new" },
  { label: "Projects", to: "/projects" },
  { label: "Users and groups", to: "/users" },
  { label: "API tokens", to: "/tokens" },
  { label: "Your secrets", to: "/secrets" },
  { label: "Sessions", to: "/sessions" },
  { label: "Audit", to: "/audit" },
] as const;
