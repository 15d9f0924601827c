/** The pages of the main navigation. */
export const MAIN_PAGES = [
  { label: "Jobs", to: "/jobs" },
  { label: "Experiments", to: "/experiments" },
  { label: "Reports", to: "/reports" },
  { label: "Queue", to: "/queue" },
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
] as const;
