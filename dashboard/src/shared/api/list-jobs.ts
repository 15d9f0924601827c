import { infiniteQueryOptions, useInfiniteQuery } from "@tanstack/react-query";
import { listJobs as request } from "@/client";
import { unwrap } from "@/shared/api/client";
import { keys } from "@/shared/api/keys";
import { isActive, type Job } from "@/shared/api/types";

const PAGE = 100;
const BUSY_MS = 1500;
const CALM_MS = 4000;

export interface JobsPage {
  items: Job[];
  next_cursor?: string | null;
}

export function listJobs(cursor: string | null, signal?: AbortSignal): Promise<JobsPage> {
  const query = cursor === null ? { limit: PAGE } : { limit: PAGE, cursor };
  return unwrap(request({ query, ...(signal ? { signal } : {}) }));
}

export function jobsOptions() {
  return infiniteQueryOptions({
    queryKey: keys.jobs,
    queryFn: ({ pageParam, signal }) => listJobs(pageParam, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    refetchInterval: (query) => {
      const pages = query.state.data?.pages ?? [];
      return pages.some((page) => page.items.some((job) => isActive(job.state)))
        ? BUSY_MS
        : CALM_MS;
    },
  });
}

/** The newest jobs first, renewed while the page is looked at. */
export function useJobs() {
  return useInfiniteQuery(jobsOptions());
}
