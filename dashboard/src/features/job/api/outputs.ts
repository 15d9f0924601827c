import { useQuery } from "@tanstack/react-query";
import { listOutputs, type Output } from "@/client";
import { listOutputsQueryKey } from "@/client/@tanstack/react-query.gen";
import { everyPage } from "@/shared/api/pages";
import { ApiError } from "@/shared/api/problem";
import { isFinished, isRun, type Job } from "@/shared/api/types";

export type { Output } from "@/client";

/** No event reports new files; hosts send theirs every few minutes, and at the end of an attempt. */
const POLL_MS = 30_000;

/** Whether a job may have files: one that has not begun has none. */
export function mayHaveOutputs(job: Pick<Job, "attempt" | "kind">): boolean {
  return job.attempt > 0 || isRun(job);
}

/** All files that a job has written, or a run has logged, ordered by path. */
export function useOutputs(job: Job) {
  const path = { job_id: job.id };
  return useQuery({
    queryKey: listOutputsQueryKey({ path }),
    queryFn: () =>
      everyPage<Output>((cursor) => listOutputs({ path, query: cursor ? { cursor } : {} })),
    enabled: mayHaveOutputs(job),
    refetchInterval: isFinished(job) ? false : POLL_MS,
  });
}

function addressOf(jobId: string): string {
  return `/api/v1/outputs/jobs/${encodeURIComponent(jobId)}`;
}

export function archiveUrl(jobId: string): string {
  return `${addressOf(jobId)}.tar`;
}

export function fileUrl(jobId: string, path: string): string {
  return `${addressOf(jobId)}/files/${path.split("/").map(encodeURIComponent).join("/")}`;
}

/**
 * The content of a file, or its beginning.
 *
 * @param most bytes of it
 * @throws ApiError
 */
function readOutput(
  jobId: string,
  file: Output,
  most: number,
  signal: AbortSignal,
): Promise<ArrayBuffer> {
  const headers = file.size > most ? { Range: `bytes=0-${most - 1}` } : undefined;
  const url = new URL(fileUrl(jobId, file.path), window.location.origin);
  return fetch(url, { signal, ...(headers ? { headers } : {}) }).then(
    async (response) => {
      if (response.ok) return response.arrayBuffer();
      throw ApiError.of(response, await response.json().catch(() => response.text()));
    },
    (error: unknown) => {
      throw ApiError.unreachable(error);
    },
  );
}

/** Options of a query for a file's first bytes; one that was replaced is another one. */
export function contentOptions(jobId: string, file: Output, most: number) {
  return {
    queryKey: ["output", jobId, file.path, file.sha256, most],
    queryFn: ({ signal }: { signal: AbortSignal }) => readOutput(jobId, file, most, signal),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 60_000,
  };
}
