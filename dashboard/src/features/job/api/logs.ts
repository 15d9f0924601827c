import { type LogPage, type ReadLogsData, readLogs as request } from "@/client";

export type { LogPage } from "@/client";

export interface LogFilter {
  rank?: number | undefined;
  stream?: "stdout" | "stderr" | undefined;
  attempt?: number | undefined;
}

/** The last lines, those after, before or around a cursor, or the first ones. */
export type LogFrom =
  | { tail: number }
  | { after: string; limit: number }
  | { before: string; limit: number }
  | { at: string; limit: number }
  | { limit: number };

function read(jobId: string, query: ReadLogsData["query"]): Promise<LogPage> {
  return request({ path: { job_id: jobId }, query });
}

export function readLogs(jobId: string, filter: LogFilter, from: LogFrom): Promise<LogPage> {
  return read(jobId, { ...filter, ...from });
}

/** The stored lines that contain a text. */
export function searchLogs(
  jobId: string,
  filter: LogFilter,
  search: string,
  after: string | null,
  limit: number,
): Promise<LogPage> {
  return read(jobId, { ...filter, search, after, limit });
}
