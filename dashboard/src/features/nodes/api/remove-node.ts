import { useMutation, useQueryClient } from "@tanstack/react-query";
import { removeNode as request } from "@/client";
import { unwrap } from "@/shared/api/client";
import { keys } from "@/shared/api/keys";
import { notifyProblem } from "@/shared/ui/notify";

/** Give a node no new work, and remove it once what runs on it has ended. */
export function removeNode(id: string): Promise<unknown> {
  return unwrap(request({ path: { node_id: id } }));
}

export function useRemoveNode() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: removeNode,
    onSuccess: () => client.invalidateQueries({ queryKey: keys.nodes }),
    onError: (error) => notifyProblem("The node could not be removed", error),
  });
}
