import { useQuery } from "@tanstack/react-query";
import { readSummary } from "@/client";
import {
  readHealthOptions,
  readNodeHistoryOptions,
  readQueueOptions,
  readSummaryOptions,
} from "@/client/@tanstack/react-query.gen";
import { ApiError } from "./problem";

const SUMMARY_MS = 3000;
/** A coordinator that is frozen accepts a request and never answers. */
export const PATIENCE_MS = 10_000;
const QUEUE_MS = 3000;
/** The coordinator stores a reading of every device this often. */
const READING_MS = 30_000;
const HISTORY_POINTS = 480;

/** The coordinator's version and mode, which do not change while it runs. */
export function useHealth() {
  return useQuery({
    ...readHealthOptions(),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: Number.POSITIVE_INFINITY,
  });
}

export function useSummary() {
  return useQuery({
    ...readSummaryOptions(),
    queryFn: () => readSummary({ signal: AbortSignal.timeout(PATIENCE_MS) }),
    retry: false,
    refetchInterval: SUMMARY_MS,
  });
}

/** Why commands are refused while the coordinator does not answer; undefined while it does. */
export function useUnreachable(): string | undefined {
  // Reads what the page's header polls.
  const { error } = useQuery({ ...readSummaryOptions(), enabled: false });
  const silent = error instanceof ApiError && error.status === 0;
  return silent ? "The coordinator is unreachable. Try again when it is back." : undefined;
}

/** A time span in RFC 3339; `until` null: up to now. */
interface TimeSpan {
  since: string;
  until: string | null;
}

/** Readings of a node's devices; polled while the span goes on. */
export function nodeHistoryOptions(nodeId: string, { since, until }: TimeSpan) {
  return {
    ...readNodeHistoryOptions({
      path: { node_id: nodeId },
      query: { since, until: until ?? undefined, max_points: HISTORY_POINTS },
    }),
    staleTime: READING_MS,
    refetchInterval: until === null ? READING_MS : (false as const),
  };
}

/** The queue entry of one job, however far back it is; null: it does not wait. */
export function useQueueEntry(jobId: string, waits: boolean) {
  return useQuery({
    ...readQueueOptions({ query: { job_id: jobId, history: true } }),
    select: ({ items }) => items[0] ?? null,
    refetchInterval: QUEUE_MS,
    enabled: waits,
  });
}
