import { queryOptions, useQuery } from "@tanstack/react-query";
import { readLogs as request } from "@/client";
import { unwrap } from "./client";
import { keys } from "./keys";
import type { LogLine } from "./types";

const EVERY_MS = 3000;

/** The newest line that any rank of a job wrote; null: none did. */
export async function lastLine(jobId: string, signal?: AbortSignal): Promise<LogLine | null> {
  const query = { tail: 1 };
  const page = await unwrap(
    request({ path: { job_id: jobId }, query, ...(signal ? { signal } : {}) }),
  );
  return page.items.at(-1) ?? null;
}

export function lastLineOptions(jobId: string, active: boolean) {
  return queryOptions({
    queryKey: [...keys.lastLine(jobId), active],
    queryFn: ({ signal }) => lastLine(jobId, signal),
    staleTime: active ? EVERY_MS : Number.POSITIVE_INFINITY,
    refetchInterval: active ? EVERY_MS : false,
    // The old line stays while a job changes its state.
    placeholderData: (before) => before,
  });
}

/** Asked only where it is shown. */
export function useLastLine(jobId: string, active: boolean, shown: boolean) {
  return useQuery({ ...lastLineOptions(jobId, active), enabled: shown });
}
