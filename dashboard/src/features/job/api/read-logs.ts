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
  next_cursor?: string | null;
}

export type LogFrom = { tail: number } | { after: string; limit: number };

/** The last lines, or those behind a cursor. */
export function readLogs(jobId: string, filter: LogFilter, from: LogFrom): Promise<LogPage> {
  const given = Object.entries({ ...filter, ...from }).filter(([, value]) => value !== undefined);
  return unwrap(request({ path: { job_id: jobId }, query: Object.fromEntries(given) }));
}
