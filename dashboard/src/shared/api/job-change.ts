import { useQueryClient } from "@tanstack/react-query";
import { notifyProblem } from "../ui/notify";
import { keys } from "./keys";
import type { Job } from "./types";

/** What follows a command on a job: its answer is shown at once, and lists are renewed. */
export function useJobChange(what: string) {
  const client = useQueryClient();
  return {
    onSuccess: async (job: Job) => {
      client.setQueryData(keys.job(job.id), job);
      await client.invalidateQueries({ queryKey: keys.jobs });
    },
    onError: (error: unknown) => notifyProblem(what, error),
  };
}
