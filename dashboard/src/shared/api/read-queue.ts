import { queryOptions, useQuery } from "@tanstack/react-query";
import { readQueue as request } from "@/client";
import { unwrap } from "./client";
import { keys } from "./keys";
import type { QueueEntry } from "./types";

export async function readQueue(signal?: AbortSignal): Promise<QueueEntry[]> {
  const reply = await unwrap(request(signal ? { signal } : {}));
  return reply.items;
}

export function queueOptions() {
  return queryOptions({
    queryKey: keys.queue,
    queryFn: ({ signal }) => readQueue(signal),
    refetchInterval: 3000,
  });
}

/** The waiting jobs in their order; asked only where something waits. */
export function useQueue(enabled: boolean) {
  return useQuery({ ...queueOptions(), enabled });
}
