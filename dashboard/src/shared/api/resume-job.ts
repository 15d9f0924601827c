import { useMutation } from "@tanstack/react-query";
import { resumeJob as request } from "@/client";
import { unwrap } from "./client";
import { useJobChange } from "./job-change";
import type { Job } from "./types";

export function resumeJob(id: string): Promise<Job> {
  return unwrap(request({ path: { job_id: id } }));
}

export function useResumeJob() {
  return useMutation({ mutationFn: resumeJob, ...useJobChange("The job could not be resumed") });
}
