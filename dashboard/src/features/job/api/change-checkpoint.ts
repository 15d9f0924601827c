import { useMutation, useQueryClient } from "@tanstack/react-query";
import { deleteCheckpoint, pinCheckpoint, restoreCheckpoint, unpinCheckpoint } from "@/client";
import { unwrap } from "@/shared/api/client";
import { keys } from "@/shared/api/keys";
import type { Checkpoint } from "@/shared/api/types";
import { notifyDone, notifyProblem } from "@/shared/ui/notify";

export interface CheckpointChange {
  kind: "pin" | "unpin" | "delete" | "restore";
  checkpoint: Checkpoint;
  /** Of a restore: what shall be otherwise than before. */
  workers?: number | null;
  strategy?: string | null;
}

const FAILED = {
  pin: "The checkpoint could not be pinned",
  unpin: "The checkpoint could not be unpinned",
  delete: "The checkpoint could not be deleted",
  restore: "The checkpoint could not be restored",
};

export async function changeCheckpoint(change: CheckpointChange): Promise<void> {
  const path = { checkpoint_id: change.checkpoint.id };
  if (change.kind === "pin") await unwrap(pinCheckpoint({ path }));
  else if (change.kind === "unpin") await unwrap(unpinCheckpoint({ path }));
  else if (change.kind === "delete") await unwrap(deleteCheckpoint({ path }));
  else {
    const { workers = null, strategy = null } = change;
    const body = {
      ...(workers === null ? {} : { resources: { workers } }),
      ...(strategy === null ? {} : { parallelism: { strategy } }),
    };
    await unwrap(restoreCheckpoint({ path, body }));
  }
}

export function useChangeCheckpoint(jobId: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: changeCheckpoint,
    onSuccess: async (_, { kind, checkpoint }) => {
      if (kind === "restore") notifyDone(`A new attempt starts from step ${checkpoint.step}.`);
      // Attempts and checkpoints are below the job's own key.
      await client.invalidateQueries({ queryKey: keys.job(jobId) });
    },
    onError: (error, { kind }) => notifyProblem(FAILED[kind], error),
  });
}
