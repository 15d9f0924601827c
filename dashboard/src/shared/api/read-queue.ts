import {
  infiniteQueryOptions,
  queryOptions,
  useInfiniteQuery,
  useQuery,
} from "@tanstack/react-query";
import { readQueue as request } from "@/client";
import { unwrap } from "./client";
import { keys } from "./keys";
import type { QueueEntry, QueuePage } from "./types";

const PAGE = 100;
const EVERY_MS = 3000;

export function readQueue(cursor: string | null, signal?: AbortSignal): Promise<QueuePage> {
  const query = cursor === null ? { limit: PAGE } : { limit: PAGE, cursor };
  return unwrap(request({ query, ...(signal ? { signal } : {}) }));
}

export function queueOptions() {
  return infiniteQueryOptions({
    queryKey: keys.queue,
    queryFn: ({ pageParam, signal }) => readQueue(pageParam, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    refetchInterval: EVERY_MS,
  });
}

/** The waiting jobs in their order, page by page. */
export function useQueue() {
  return useInfiniteQuery(queueOptions());
}

/** The place of one job, however far back it is; null: it does not wait. */
export async function readPlace(jobId: string, signal?: AbortSignal): Promise<QueueEntry | null> {
  const page = await unwrap(request({ query: { job_id: jobId }, ...(signal ? { signal } : {}) }));
  return page.items[0] ?? null;
}

export function placeOptions(jobId: string) {
  return queryOptions({
    queryKey: keys.place(jobId),
    queryFn: ({ signal }) => readPlace(jobId, signal),
    refetchInterval: EVERY_MS,
  });
}

/** Asked only of a job that waits. */
export function usePlace(jobId: string, waits: boolean) {
  return useQuery({ ...placeOptions(jobId), enabled: waits });
}
