import { queryOptions, useQuery } from "@tanstack/react-query";
import { readSummary as request } from "@/client";
import { unwrap } from "./client";
import { keys } from "./keys";
import type { Summary } from "./types";

export function readSummary(signal?: AbortSignal): Promise<Summary> {
  return unwrap(request(signal ? { signal } : {}));
}

export function summaryOptions() {
  return queryOptions({
    queryKey: keys.summary,
    queryFn: ({ signal }) => readSummary(signal),
    refetchInterval: 3000,
  });
}

export function useSummary() {
  return useQuery(summaryOptions());
}
