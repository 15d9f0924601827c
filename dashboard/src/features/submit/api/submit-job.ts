import { useMutation } from "@tanstack/react-query";
import { submitJob } from "@/client";
import { useJobChanged } from "@/shared/api/jobs";
import { withCode } from "@/shared/api/problem";
import type { DryRun, Job } from "@/shared/api/types";
import { type Submission, yamlRequest } from "@/shared/api/yaml";

export function useCheckSpec() {
  return useMutation({
    mutationFn: async (text: string) => {
      const plan = await submitJob({ ...yamlRequest({ text }), query: { dry_run: true } });
      return withCode(plan as DryRun, "code");
    },
  });
}

export function useSubmitJob() {
  return useMutation({
    mutationFn: (submission: Submission) => submitJob(yamlRequest(submission)) as Promise<Job>,
    onSuccess: useJobChanged(),
  });
}
