import type { JobGroupPage } from "@/client";
import type { Job } from "@/shared/api/types";
import { ownerTerms, type Scope } from "@/shared/owners/scope";

interface Listing {
  label: string;
  /** Null: any. */
  states: readonly Job["state"][] | null;
  /** A term that is added to the query. */
  term?: string;
}

/** Filters by state; the name of each is in the URL (`?show=active`). */
const LISTINGS = {
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
  archived: { label: "Archived", states: null, term: "archived:yes" },
} as const satisfies Record<string, Listing>;

export type Filter = keyof typeof LISTINGS;

export const FILTERS: Readonly<Record<Filter, Listing>> = LISTINGS;

/** A query with the terms of filter and scope, which come last: an error keeps its position. */
export function queryOf(show: Filter, query: string, scope: Scope = {}): string {
  const terms = [query.trim(), FILTERS[show].term ?? "", ownerTerms(scope)];
  return terms.filter((term) => term !== "").join(" ");
}

export function isFilter(value: unknown): value is Filter {
  return typeof value === "string" && Object.hasOwn(FILTERS, value);
}

/** Numbers of jobs by their state; undefined until they are counted. */
export function stateCounts(groups: JobGroupPage | undefined): Record<string, number> | undefined {
  if (groups === undefined) return undefined;
  return Object.fromEntries(groups.items.map(({ value, count }) => [value ?? "", count]));
}

/** How many jobs a filter has, by the count of every state; undefined: not counted. */
export function counted(show: Filter, counts: Record<string, number>): number | undefined {
  if (FILTERS[show].term !== undefined) return undefined;
  const states: readonly string[] = FILTERS[show].states ?? Object.keys(counts);
  return states.reduce((sum, state) => sum + (counts[state] ?? 0), 0);
}
