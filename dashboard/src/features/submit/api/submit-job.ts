import { useMutation } from "@tanstack/react-query";
import { submitJob } from "@/client";
import { useJobChanged } from "@/shared/api/jobs";
import type { DryRun, Job } from "@/shared/api/types";
import { type Submission, yamlRequest } from "@/shared/api/yaml";

export function useCheckSpec() {
  return useMutation({
    mutationFn: (text: string) =>
      submitJob({ ...yamlRequest({ text }), query: { dry_run: true } }) as Promise<DryRun>,
  });
}

export function useSubmitJob() {
  return useMutation({
    mutationFn: (submission: Submission) => submitJob(yamlRequest(submission)) as Promise<Job>,
    onSuccess: useJobChanged(),
  });
}
