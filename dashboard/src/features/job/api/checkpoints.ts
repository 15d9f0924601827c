import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { deleteCheckpoint, pinCheckpoint, restoreCheckpoint, unpinCheckpoint } from "@/client";
import { listCheckpointsOptions } from "@/client/@tanstack/react-query.gen";
import { aboutJob } from "@/shared/api/jobs";
import type { Checkpoint } from "@/shared/api/types";
import { count } from "@/shared/format";
import { notifyDone, notifyProblem } from "@/shared/ui/notify";

const DELETING_MS = 2000;

/** A job's checkpoints, the newest first; deleted ones are left out. */
export function useCheckpoints(jobId: string) {
  return useQuery({
    ...listCheckpointsOptions({ path: { job_id: jobId } }),
    select: ({ items }) =>
      items
        .filter((checkpoint) => checkpoint.state !== "deleted")
        .sort((a, b) => b.step - a.step || b.created_at.localeCompare(a.created_at)),
    // No event reports that the files were removed.
    refetchInterval: ({ state }) =>
      state.data?.items.some((checkpoint) => checkpoint.state === "deleting") ? DELETING_MS : false,
  });
}

export interface CheckpointChange {
  kind: "pin" | "unpin" | "delete" | "restore";
  checkpoint: Checkpoint;
  /** Changes to the spec for a restore. */
  workers?: number | null;
  strategy?: string | null;
}

const FAILED = {
  pin: "Could not pin the checkpoint",
  unpin: "Could not unpin the checkpoint",
  delete: "Could not delete the checkpoint",
  restore: "Could not restore the checkpoint",
};

function change({ kind, checkpoint, workers, strategy }: CheckpointChange): Promise<unknown> {
  const path = { checkpoint_id: checkpoint.id };
  if (kind === "pin") return pinCheckpoint({ path });
  if (kind === "unpin") return unpinCheckpoint({ path });
  if (kind === "delete") return deleteCheckpoint({ path });
  const body = {
    ...(workers ? { resources: { workers } } : {}),
    ...(strategy ? { parallelism: { strategy } } : {}),
  };
  return restoreCheckpoint({ path, body });
}

export function useChangeCheckpoint(jobId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: async (_, { kind, checkpoint }) => {
      if (kind === "restore")
        notifyDone(`The job is queued to start from step ${count(checkpoint.step)}.`);
      await client.invalidateQueries({ queryKey: aboutJob(jobId) });
    },
    onError: (error, { kind }) => notifyProblem(FAILED[kind], error),
  });
}
