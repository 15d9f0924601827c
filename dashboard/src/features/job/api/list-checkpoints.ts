import { queryOptions, useQuery } from "@tanstack/react-query";
import { listCheckpoints as request } from "@/client";
import { unwrap } from "@/shared/api/client";
import { keys } from "@/shared/api/keys";
import type { Checkpoint } from "@/shared/api/types";

const DELETING_MS = 2000;

/** A job's checkpoints, the newest first; those that are gone are left out. */
export async function listCheckpoints(jobId: string, signal?: AbortSignal): Promise<Checkpoint[]> {
  const page = await unwrap(request({ path: { job_id: jobId }, ...(signal ? { signal } : {}) }));
  return page.items
    .filter((checkpoint) => checkpoint.state !== "deleted")
    .sort((a, b) => b.step - a.step || b.created_at.localeCompare(a.created_at));
}

export function checkpointsOptions(jobId: string) {
  return queryOptions({
    queryKey: keys.checkpoints(jobId),
    queryFn: ({ signal }) => listCheckpoints(jobId, signal),
    // No event tells when the files of one are gone.
    refetchInterval: ({ state }) =>
      state.data?.some((checkpoint) => checkpoint.state === "deleting") ? DELETING_MS : false,
  });
}

export function useCheckpoints(jobId: string) {
  return useQuery(checkpointsOptions(jobId));
}
