import { useMutation } from "@tanstack/react-query";
import { cancelJob as request } from "@/client";
import { unwrap } from "./client";
import { useJobChange } from "./job-change";
import type { Job } from "./types";

export function cancelJob(id: string): Promise<Job> {
  return unwrap(request({ path: { job_id: id } }));
}

export function useCancelJob() {
  return useMutation({ mutationFn: cancelJob, ...useJobChange("The job could not be cancelled") });
}
