import {
  type InfiniteData,
  keepPreviousData,
  useInfiniteQuery,
  useQueries,
  useQueryClient,
} from "@tanstack/react-query";
import { type JobPage, listJobs } from "@/client";
import { listJobsInfiniteOptions } from "@/client/@tanstack/react-query.gen";
import { JOBS_ON_SCREEN } from "@/shared/api/jobs";
import { BY_CURSOR } from "@/shared/api/pages";
import { isActive, type Job } from "@/shared/api/types";
import { NEWEST_FIRST, type Sort } from "../table/sort";

const PAGE = 100;
const BUSY_MS = 1500;
const CALM_MS = 4000;

export interface Filter {
  /** Null: jobs in any state. */
  states: readonly Job["state"][] | null;
  /** A part of the name, or the beginning of the id. */
  search: string;
  /** Terms that all must match. */
  query: string;
}

/** The parameters of a request for the jobs that match. */
export function parametersOf({ states, search, query }: Filter) {
  return {
    state: states === null ? undefined : [...states],
    search: search.trim() || undefined,
    query: query.trim() || undefined,
  };
}

/** First and last page that have a row on the screen. */
export type PageRange = readonly [first: number, last: number];

/**
 * The jobs that match, in the order of `sort`. Only the pages on the screen are polled.
 *
 * @param enabled Whether to read them.
 */
export function useJobList(filter: Filter, sort: Sort, [first, last]: PageRange, enabled: boolean) {
  const client = useQueryClient();
  const query = {
    limit: PAGE,
    ...parametersOf(filter),
    sort: sort === NEWEST_FIRST ? undefined : sort,
  };
  const options = listJobsInfiniteOptions({ query });
  const list = useInfiniteQuery({
    ...options,
    ...BY_CURSOR,
    enabled,
    staleTime: Number.POSITIVE_INFINITY,
    // The previous jobs stay until the response arrives.
    placeholderData: keepPreviousData,
  });
  const pages =
    list.isPlaceholderData || !enabled ? [] : (list.data?.pages ?? []).slice(first, last + 1);
  const errors = useQueries({
    queries: pages.map(({ items }, i) => {
      const cursor = list.data?.pageParams[first + i];
      return {
        queryKey: [...JOBS_ON_SCREEN, query, cursor],
        queryFn: async ({ signal }: { signal: AbortSignal }) => {
          const after = typeof cursor === "string" ? cursor : undefined;
          const page = await listJobs({ query: { ...query, cursor: after }, signal });
          client.setQueryData<JobList>(
            options.queryKey,
            (old) => old && renewed(old, cursor, page, sort === NEWEST_FIRST),
          );
          return null;
        },
        initialData: null,
        initialDataUpdatedAt: list.dataUpdatedAt,
        refetchInterval: items.some(isActive) ? BUSY_MS : CALM_MS,
        gcTime: 0,
      };
    }),
    combine: (polls) => polls.map((poll) => poll.error),
  });
  return { ...list, error: list.error ?? errors.find((error) => error !== null) ?? null };
}

type JobList = InfiniteData<JobPage, unknown>;

/**
 * A list with the page that begins at a cursor as it is now.
 *
 * Jobs that newer ones pushed off the end of the page move to the next one, so that none is missing.
 * In another order jobs move either way: the next page follows when it is read again.
 */
export function renewed(
  list: JobList,
  cursor: unknown,
  page: JobPage,
  newestFirst = true,
): JobList {
  const at = list.pageParams.indexOf(cursor);
  const before = list.pages[at];
  if (before === undefined) return list;
  const oldest = page.items.at(-1);
  const ids = new Set(page.items.map((job) => job.id));
  const earlier = list.pages
    .slice(0, at)
    .map((each) => ({ ...each, items: each.items.filter((job) => !ids.has(job.id)) }));
  if (page.next_cursor === null || oldest === undefined) {
    const pages = [...earlier, page];
    return { pages, pageParams: list.pageParams.slice(0, at + 1) };
  }
  const pushed = before.items.filter(
    (job) => newestFirst && !ids.has(job.id) && job.created_at <= oldest.created_at,
  );
  const later = list.pages.slice(at + 1).map((next, i) => {
    const items = next.items.filter((job) => !ids.has(job.id));
    return { ...next, items: i === 0 ? [...pushed, ...items] : items };
  });
  return {
    pages: [...earlier, page, ...later],
    pageParams: list.pageParams.map((param, i) => (i === at + 1 ? page.next_cursor : param)),
  };
}
