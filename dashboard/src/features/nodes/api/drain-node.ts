import { useMutation, useQueryClient } from "@tanstack/react-query";
import { drainNode as drain, undrainNode as undrain } from "@/client";
import { unwrap } from "@/shared/api/client";
import { keys } from "@/shared/api/keys";
import type { ClusterNode } from "@/shared/api/types";
import { notifyProblem } from "@/shared/ui/notify";

interface Wish {
  id: string;
  drained: boolean;
  /** Why it is drained; empty: no reason is given. */
  reason?: string;
}

/** Have a node's jobs save and move, and give it no new work; or give it work again. */
export function setDrained({ id, drained, reason = "" }: Wish): Promise<ClusterNode> {
  const path = { node_id: id };
  if (!drained) return unwrap(undrain({ path }));
  return unwrap(drain({ path, body: reason.trim() === "" ? {} : { reason: reason.trim() } }));
}

export function useSetDrained() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: setDrained,
    onSuccess: (_, { id }) =>
      Promise.all([
        client.invalidateQueries({ queryKey: keys.nodes }),
        client.invalidateQueries({ queryKey: keys.nodeEvents(id) }),
      ]),
    onError: (error) => notifyProblem("The node could not be changed", error),
  });
}
