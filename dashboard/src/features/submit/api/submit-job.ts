import { useMutation } from "@tanstack/react-query";
import { submitJob } from "@/client";
import { useJobChanged } from "@/shared/api/jobs";
import type { DryRun, Job } from "@/shared/api/types";
import { yamlRequest } from "@/shared/api/yaml";

export function useCheckSpec() {
  return useMutation({
    mutationFn: (text: string) =>
      submitJob({ ...yamlRequest(text), query: { dry_run: true } }) as Promise<DryRun>,
  });
}

export function useSubmitJob() {
  return useMutation({
    /** `key` makes a repeated submission of the same text the same job. */
    mutationFn: ({ text, key }: { text: string; key: string }) => {
      const request = yamlRequest(text);
      const headers = { ...request.headers, "Idempotency-Key": key };
      return submitJob({ ...request, headers }) as Promise<Job>;
    },
    onSuccess: useJobChanged(),
  });
}

/** A random key; `crypto.randomUUID` is missing where the page is not served securely. */
export function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
