import type { Job } from "@/shared/api/types";

/** A sort key; `-` before it: in descending order. */
export type Sort = string;

export const NEWEST_FIRST: Sort = "-created_at";

/** The order that a header gives first, by column; pressed again, it gives the other. */
const FIRST: Record<string, Sort> = {
  name: "name",
  state: "state",
  step: "-step",
  world_size: "-world_size",
  created_at: NEWEST_FIRST,
  started_at: "-started_at",
  finished_at: "-finished_at",
  duration: "-duration",
  gpu_hours: "-gpu_hours",
  user: "user",
  project: "project",
  task: "task",
  strategy: "strategy",
  priority: "-priority",
};

/** The order that a column gives first; undefined: the list cannot be sorted by it. */
export function firstSort(column: string, jobs: readonly Job[], sort: Sort): Sort | undefined {
  if (column.startsWith("parameters.")) return column;
  if (column.startsWith("metrics.")) return `-${column}`;
  if (column !== "metric") return FIRST[column];
  if (keyOf(sort).startsWith("metrics.")) return `-${keyOf(sort)}`;
  // Jobs with different main metrics have no order.
  const names = new Set(jobs.flatMap(({ main_metric }) => main_metric?.name ?? []));
  const [name] = names;
  return names.size === 1 ? `-metrics.${name}` : undefined;
}

export function nextSort(first: Sort, sort: Sort): Sort {
  return sort === first ? reversed(first) : first;
}

export function direction(first: Sort, sort: Sort): "ascending" | "descending" | "none" {
  if (keyOf(first) !== keyOf(sort)) return "none";
  return sort.startsWith("-") ? "descending" : "ascending";
}

function reversed(sort: Sort): Sort {
  return sort.startsWith("-") ? keyOf(sort) : `-${sort}`;
}

function keyOf(sort: Sort): string {
  return sort.replace(/^-/, "");
}
