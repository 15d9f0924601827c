import { queryOptions } from "@tanstack/react-query";
import { readNodeHistory as request } from "@/client";
import { unwrap } from "./client";
import { keys } from "./keys";
import type { DeviceHistory } from "./types";

/** The coordinator stores a reading of every device this often. */
const EVERY_MS = 30_000;
const POINTS = 480;

/** A stretch of time in RFC 3339; `until` null: up to now. */
export interface Stretch {
  since: string;
  until: string | null;
}

export async function readNodeHistory(
  nodeId: string,
  { since, until }: Stretch,
  signal?: AbortSignal,
): Promise<DeviceHistory[]> {
  const query = { since, max_points: POINTS, ...(until === null ? {} : { until }) };
  const reply = await unwrap(
    request({ path: { node_id: nodeId }, query, ...(signal ? { signal } : {}) }),
  );
  return reply.items;
}

/** What the devices of a node did; renewed as long as it goes on. */
export function nodeHistoryOptions(nodeId: string, stretch: Stretch) {
  return queryOptions({
    queryKey: keys.nodeHistory(nodeId, stretch.since, stretch.until),
    queryFn: ({ signal }) => readNodeHistory(nodeId, stretch, signal),
    staleTime: EVERY_MS,
    refetchInterval: stretch.until === null ? EVERY_MS : false,
  });
}
