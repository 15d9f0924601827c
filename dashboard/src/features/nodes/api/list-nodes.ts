import { queryOptions, useQuery } from "@tanstack/react-query";
import { listNodes as request } from "@/client";
import { unwrap } from "@/shared/api/client";
import { keys } from "@/shared/api/keys";
import type { ClusterNode } from "@/shared/api/types";

const PAGE = 200;

/** Every node: a cluster has tens of them, so all pages are read. */
export async function listNodes(signal?: AbortSignal): Promise<ClusterNode[]> {
  const nodes: ClusterNode[] = [];
  let cursor: string | null | undefined = null;
  do {
    const query = cursor ? { limit: PAGE, cursor } : { limit: PAGE };
    const page: { items: ClusterNode[]; next_cursor?: string | null } = await unwrap(
      request({ query, ...(signal ? { signal } : {}) }),
    );
    nodes.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor);
  return nodes;
}

export function nodesOptions() {
  return queryOptions({
    queryKey: keys.nodes,
    queryFn: ({ signal }) => listNodes(signal),
    refetchInterval: 2000,
  });
}

export function useNodes() {
  return useQuery(nodesOptions());
}
