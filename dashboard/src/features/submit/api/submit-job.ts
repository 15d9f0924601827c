import { useMutation, useQueryClient } from "@tanstack/react-query";
import { submitJob as request } from "@/client";
import { unwrap } from "@/shared/api/client";
import { keys } from "@/shared/api/keys";
import type { DryRun, Job } from "@/shared/api/types";

/** Send a spec as it was written, so that what the coordinator says fits the text. */
function send(text: string, options: { dryRun: boolean; key?: string }): Promise<unknown> {
  return unwrap(
    request({
      // The document describes the body as JSON; YAML is sent as its own bytes.
      body: text as never,
      bodySerializer: (body: unknown) => body as string,
      query: options.dryRun ? { dry_run: true } : {},
      headers: {
        "Content-Type": "application/yaml",
        ...(options.key ? { "Idempotency-Key": options.key } : {}),
      },
    }),
  );
}

export function checkSpec(text: string): Promise<DryRun> {
  return send(text, { dryRun: true }) as Promise<DryRun>;
}

/** `key` makes a repeated submission of the same text the same job. */
export function submitJob({ text, key }: { text: string; key: string }): Promise<Job> {
  return send(text, { dryRun: false, key }) as Promise<Job>;
}

export function useCheckSpec() {
  return useMutation({ mutationFn: checkSpec });
}

export function useSubmitJob() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: submitJob,
    onSuccess: async (job) => {
      client.setQueryData(keys.job(job.id), job);
      await client.invalidateQueries({ queryKey: keys.jobs });
    },
  });
}

/** A random key; `crypto.randomUUID` is missing where the page is not served securely. */
export function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
