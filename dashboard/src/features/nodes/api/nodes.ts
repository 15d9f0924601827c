import { type QueryKey, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { drainNode, listNodes, undrainNode } from "@/client";
import {
  changeNodeMutation,
  listNodeEventsOptions,
  listNodesQueryKey,
  registerNodeMutation,
  removeNodeMutation,
} from "@/client/@tanstack/react-query.gen";
import { everyPage } from "@/shared/api/pages";
import { notifyProblem } from "@/shared/ui/notify";

const PAGE = 1000;
const NODES_MS = 2000;
const EVENTS_MS = 10_000;

/** Every node of the cluster. */
export function useNodes() {
  return useQuery({
    queryKey: listNodesQueryKey(),
    queryFn: ({ signal }) =>
      everyPage((cursor) => listNodes({ query: { limit: PAGE, cursor }, signal })),
    refetchInterval: NODES_MS,
  });
}

/** The events of a node, the oldest first. */
export function useNodeEvents(nodeId: string) {
  return useQuery({
    ...listNodeEventsOptions({ path: { node_id: nodeId } }),
    refetchInterval: EVENTS_MS,
  });
}

export function useRegisterNode() {
  return useMutation({ ...registerNodeMutation(), onSuccess: useRenew(listNodesQueryKey()) });
}

export function useChangeNode() {
  return useMutation({ ...changeNodeMutation(), onSuccess: useRenew(listNodesQueryKey()) });
}

export function useRemoveNode() {
  return useMutation({
    ...removeNodeMutation(),
    onSuccess: useRenew(listNodesQueryKey()),
    onError: (error) => notifyProblem("Could not remove the node", error),
  });
}

interface Drain {
  drained: boolean;
  /** Empty: no reason is given. */
  reason?: string;
}

export function useSetDrained(nodeId: string) {
  const path = { node_id: nodeId };
  return useMutation({
    mutationFn: ({ drained, reason = "" }: Drain) =>
      drained
        ? drainNode({ path, body: { reason: reason.trim() || undefined } })
        : undrainNode({ path }),
    onSuccess: useRenew(listNodesQueryKey(), [{ path }]),
    onError: (error) => notifyProblem("Could not change the node", error),
  });
}

function useRenew(...keys: QueryKey[]) {
  const client = useQueryClient();
  return () => Promise.all(keys.map((queryKey) => client.invalidateQueries({ queryKey })));
}
