import { infiniteQueryOptions, keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
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

export interface JobsWanted {
  /** Null: jobs in any state. */
  states?: readonly Job["state"][] | null;
  /** A part of the name, or the beginning of the id. */
  search?: string;
}

export function jobsOptions({ states = null, search = "" }: JobsWanted = {}) {
  const wanted = search.trim();
  return infiniteQueryOptions({
    queryKey: keys.foundJobs(states, wanted),
    queryFn: ({ pageParam, signal }): Promise<JobsPage> => {
      const query = {
        limit: PAGE,
        ...(pageParam === null ? {} : { cursor: pageParam }),
        ...(states === null ? {} : { state: [...states] }),
        ...(wanted === "" ? {} : { search: wanted }),
      };
      return unwrap(request({ query, signal }));
    },
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    // What was found before is looked through until the answer is here.
    placeholderData: keepPreviousData,
    refetchInterval: (query) => {
      const pages = query.state.data?.pages ?? [];
      return pages.some((page) => page.items.some((job) => isActive(job.state)))
        ? BUSY_MS
        : CALM_MS;
    },
  });
}

/** The newest jobs first, renewed while the page is looked at. */
export function useJobs(wanted?: JobsWanted) {
  return useInfiniteQuery(jobsOptions(wanted));
}
