import { useMutation } from "@tanstack/react-query";
import { pauseJob as request } from "@/client";
import { unwrap } from "./client";
import { useJobChange } from "./job-change";
import type { Job } from "./types";

export function pauseJob(id: string): Promise<Job> {
  return unwrap(request({ path: { job_id: id } }));
}

export function usePauseJob() {
  return useMutation({ mutationFn: pauseJob, ...useJobChange("The job could not be paused") });
}
