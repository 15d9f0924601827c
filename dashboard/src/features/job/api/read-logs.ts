import { readLogs as request } from "@/client";
import { unwrap } from "@/shared/api/client";
import type { LogLine } from "@/shared/api/types";

export interface LogFilter {
  rank?: number | undefined;
  stream?: "stdout" | "stderr" | undefined;
  attempt?: number | undefined;
}

export interface LogPage {
  items: LogLine[];
  /** Where what is behind this page begins. */
  next_cursor: string | null;
  /** Where this page begins; null: there is nothing ahead of it. */
  previous_cursor: string | null;
  /** Something is stored behind it. */
  more: boolean;
}

/** The last lines, those behind or ahead of a cursor, those about a line, or the first ones. */
export type LogFrom =
  | { tail: number }
  | { after: string; limit: number }
  | { before: string; limit: number }
  | { at: string; limit: number }
  | { limit: number };

export function readLogs(jobId: string, filter: LogFilter, from: LogFrom): Promise<LogPage> {
  return ask(jobId, { ...filter, ...from });
}

/** Of everything that is stored, the lines with a text. */
export function searchLogs(
  jobId: string,
  filter: LogFilter,
  search: string,
  after: string | null,
  limit: number,
): Promise<LogPage> {
  return ask(jobId, { ...filter, search, limit, after: after ?? undefined });
}

async function ask(
  jobId: string,
  query: Record<string, string | number | undefined>,
): Promise<LogPage> {
  const given = Object.entries(query).filter(([, value]) => value !== undefined);
  return unwrap(request({ path: { job_id: jobId }, query: Object.fromEntries(given) }));
}
