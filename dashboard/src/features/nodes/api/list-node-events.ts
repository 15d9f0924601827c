import { useQuery } from "@tanstack/react-query";
import { listNodeEvents as request } from "@/client";
import { unwrap } from "@/shared/api/client";
import { keys } from "@/shared/api/keys";
import type { NodeEvent } from "@/shared/api/types";

const EVERY_MS = 10_000;

export async function listNodeEvents(nodeId: string, signal?: AbortSignal): Promise<NodeEvent[]> {
  const reply = await unwrap(request({ path: { node_id: nodeId }, ...(signal ? { signal } : {}) }));
  return reply.items;
}

/** What became of a node, the oldest first. */
export function useNodeEvents(nodeId: string) {
  return useQuery({
    queryKey: keys.nodeEvents(nodeId),
    queryFn: ({ signal }) => listNodeEvents(nodeId, signal),
    refetchInterval: EVERY_MS,
  });
}
