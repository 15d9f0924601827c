import { queryOptions, useQuery } from "@tanstack/react-query";
import { listAttempts as request } from "@/client";
import { unwrap } from "@/shared/api/client";
import { keys } from "@/shared/api/keys";
import type { Attempt } from "@/shared/api/types";

export async function listAttempts(jobId: string, signal?: AbortSignal): Promise<Attempt[]> {
  const page = await unwrap(request({ path: { job_id: jobId }, ...(signal ? { signal } : {}) }));
  return page.items;
}

export function attemptsOptions(jobId: string) {
  return queryOptions({
    queryKey: keys.attempts(jobId),
    queryFn: ({ signal }) => listAttempts(jobId, signal),
  });
}

export function useAttempts(jobId: string) {
  return useQuery(attemptsOptions(jobId));
}
