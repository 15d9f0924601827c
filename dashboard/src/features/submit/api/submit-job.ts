import { useMutation } from "@tanstack/react-query";
import { submitJob } from "@/client";
import { useJobChanged } from "@/shared/api/jobs";
import type { DryRun, Job } from "@/shared/api/types";

/** Sends a spec as text, so that errors name its lines. */
function send(text: string, options: Pick<Parameters<typeof submitJob>[0], "query" | "headers">) {
  return submitJob({
    // The generated client expects JSON; YAML is sent as it is.
    body: text as never,
    bodySerializer: (body: unknown) => body as string,
    query: options.query,
    headers: { "Content-Type": "application/yaml", ...options.headers },
  });
}

export function useCheckSpec() {
  return useMutation({
    mutationFn: (text: string) => send(text, { query: { dry_run: true } }) as Promise<DryRun>,
  });
}

export function useSubmitJob() {
  return useMutation({
    /** `key` makes a repeated submission of the same text the same job. */
    mutationFn: ({ text, key }: { text: string; key: string }) =>
      send(text, { headers: { "Idempotency-Key": key } }) as Promise<Job>,
    onSuccess: useJobChanged(),
  });
}

/** A random key; `crypto.randomUUID` is missing where the page is not served securely. */
export function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
