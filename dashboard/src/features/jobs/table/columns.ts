import type { Job } from "@/shared/api/types";

/** A column of the table, by the name of its field in the REST API. */
export type ColumnId = string;

/** Columns that are chosen by a URL without any, in their order. */
export const DEFAULT_COLUMNS: readonly ColumnId[] = [
  "name",
  "user",
  "state",
  "step",
  "metric",
  "world_size",
  "created_at",
];

/** Titles of all columns that are no parameter or metric of the jobs. */
export const TITLES: Readonly<Record<ColumnId, string>> = {
  name: "Job",
  state: "State",
  step: "Progress",
  metric: "Metric",
  world_size: "Workers",
  created_at: "Submitted",
  started_at: "Started",
  finished_at: "Finished",
  duration: "Duration",
  gpu_hours: "GPU-hours",
  user: "Owner",
  project: "Project",
  tags: "Tags",
  task: "Task",
  strategy: "Strategy",
  priority: "Priority",
};

const MAX_COLUMNS = 40;
const MAX_LENGTH = 256;
const PARAMETER = "parameters.";
const METRIC = "metrics.";
const AGGREGATE = /\.(min|max)$/;

/** A parameter or a metric that a column shows; undefined for the other columns. */
export type ValueOf =
  | { kind: "parameter"; name: string }
  | { kind: "metric"; name: string; aggregate: "min" | "max" | null };

export function valueIn(id: ColumnId): ValueOf | undefined {
  if (id.startsWith(PARAMETER)) return { kind: "parameter", name: id.slice(PARAMETER.length) };
  if (!id.startsWith(METRIC)) return undefined;
  const aggregate = (AGGREGATE.exec(id)?.[1] ?? null) as "min" | "max" | null;
  return { kind: "metric", name: id.slice(METRIC.length).replace(AGGREGATE, ""), aggregate };
}

export function titleOf(id: ColumnId): string {
  const value = valueIn(id);
  if (value === undefined) return TITLES[id] ?? id;
  if (value.kind === "parameter" || value.aggregate === null) return value.name;
  return `${value.name} (${value.aggregate})`;
}

export interface Columns {
  ids: readonly ColumnId[];
  /** So many of the first ones stay while the others scroll. */
  pinned: number;
}

/** The part of a URL that says which columns are shown; without the default ones. */
export interface ColumnsSearch {
  columns?: string[] | undefined;
  pinned?: number | undefined;
}

/** Reads the columns of a URL; what is no column is left out. */
export function columnsOf(raw: { columns?: unknown; pinned?: unknown }): ColumnsSearch {
  const given = Array.isArray(raw.columns) ? raw.columns : [];
  const known = given.filter(
    (id): id is string =>
      typeof id === "string" &&
      id.length <= MAX_LENGTH &&
      (Object.hasOwn(TITLES, id) || valueIn(id) !== undefined),
  );
  const columns = [...new Set(known)].slice(0, MAX_COLUMNS);
  const { pinned } = raw;
  return {
    ...(columns.length > 0 ? { columns } : {}),
    ...(typeof pinned === "number" && Number.isInteger(pinned) && pinned > 0 ? { pinned } : {}),
  };
}

export function shownColumns({ columns, pinned = 0 }: ColumnsSearch): Columns {
  const ids = columns ?? DEFAULT_COLUMNS;
  return { ids, pinned: Math.min(pinned, ids.length) };
}

export function toSearch({ ids, pinned }: Columns): ColumnsSearch {
  const isDefault = ids.join("\n") === DEFAULT_COLUMNS.join("\n");
  return { columns: isDefault ? undefined : [...ids], pinned: pinned || undefined };
}

/** Moves a column by one place; from the pinned ones to the others it is unpinned. */
export function moved({ ids, pinned }: Columns, id: ColumnId, by: -1 | 1): Columns {
  const at = ids.indexOf(id);
  const next = [...ids];
  next.splice(at, 1);
  next.splice(Math.max(0, at + by), 0, id);
  return { ids: next, pinned };
}

/** Pins a column behind the others that are pinned, or unpins it as the first of the rest. */
export function pinToggled({ ids, pinned }: Columns, id: ColumnId): Columns {
  const isPinned = ids.indexOf(id) < pinned;
  const others = ids.filter((each) => each !== id);
  const count = isPinned ? pinned - 1 : pinned + 1;
  const place = isPinned ? count : count - 1;
  return { ids: [...others.slice(0, place), id, ...others.slice(place)], pinned: count };
}

export function added({ ids, pinned }: Columns, id: ColumnId): Columns {
  return ids.includes(id) ? { ids, pinned } : { ids: [...ids, id], pinned };
}

/** Removes a column; the last one stays. */
export function removed({ ids, pinned }: Columns, id: ColumnId): Columns {
  if (ids.length === 1) return { ids, pinned };
  const wasPinned = ids.indexOf(id) < pinned;
  return { ids: ids.filter((each) => each !== id), pinned: wasPinned ? pinned - 1 : pinned };
}

/** The columns that jobs have values for, in groups; without those that are shown. */
export function available(jobs: readonly Job[], { ids }: Columns): Record<string, ColumnId[]> {
  const parameters = new Set<ColumnId>();
  const metrics = new Set<ColumnId>();
  for (const job of jobs) {
    for (const name of Object.keys(job.parameters)) parameters.add(PARAMETER + name);
    for (const name of Object.keys(job.metrics)) {
      for (const end of ["", ".min", ".max"]) metrics.add(METRIC + name + end);
    }
  }
  const groups = {
    Fields: Object.keys(TITLES),
    Parameters: [...parameters].sort(),
    Metrics: [...metrics].sort(),
  };
  return Object.fromEntries(
    Object.entries(groups).map(([group, all]) => [group, all.filter((id) => !ids.includes(id))]),
  );
}
