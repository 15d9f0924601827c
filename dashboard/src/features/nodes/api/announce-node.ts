import { useMutation, useQueryClient } from "@tanstack/react-query";
import { announceNode as request } from "@/client";
import { unwrap } from "@/shared/api/client";
import { keys } from "@/shared/api/keys";
import type { AnnouncedNode } from "@/shared/api/types";

/** Announce a host; the answer holds the command that makes it join, with a token that works once. */
export function announceNode(name: string): Promise<AnnouncedNode> {
  return unwrap(request({ body: name.trim() === "" ? {} : { name: name.trim() } }));
}

export function useAnnounceNode() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: announceNode,
    onSuccess: () => client.invalidateQueries({ queryKey: keys.nodes }),
  });
}
