import { useQueryClient } from "@tanstack/react-query";
import { notifyProblem } from "../ui/notify";
import { keys } from "./keys";
import type { Job } from "./types";

/** What follows a command on a job: its answer is shown at once, and lists are renewed. */
export function useJobChange(what: string) {
  return { onSuccess: useJobChanged(), onError: (error: unknown) => notifyProblem(what, error) };
}

/** The same for a command whose refusal is told where it was given. */
export function useJobChanged() {
  const client = useQueryClient();
  return async (job: Job) => {
    client.setQueryData(keys.job(job.id), job);
    await client.invalidateQueries({ queryKey: keys.jobs });
  };
}
