import { useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { listOutputs, type Output, type OutputPage } from "@/client";
import { listOutputsOptions, listOutputsQueryKey } from "@/client/@tanstack/react-query.gen";
import { everyPage } from "@/shared/api/pages";
import { ApiError } from "@/shared/api/problem";
import { isFinished, isRun, type Job } from "@/shared/api/types";

export type { Output, OutputPage, OutputTotals } from "@/client";

/** No event reports new files; hosts send theirs every few minutes, and at the end of an attempt. */
const POLL_MS = 30_000;
/** Items of a page. */
const PAGE = 500;

/** Whether a job may have files: one that has not begun has none. */
export function mayHaveOutputs(job: Pick<Job, "attempt" | "kind">): boolean {
  return job.attempt > 0 || isRun(job);
}

/** Which of a job's files are shown. */
export interface OutputFilter {
  /** The lowest rank of the host that wrote them; left out: those of all hosts. */
  rank: number | undefined;
  /** Words that are in their paths; empty: any. */
  find: string;
}

/** A page of a folder; the first one has no cursor. */
export interface PageAddress {
  folder: string;
  cursor: string | undefined;
}

/** What tells pages apart. */
export function pageKey({ folder, cursor = "" }: PageAddress): string {
  return `${cursor} ${folder}`;
}

/**
 * Reads pages of folders. With words to find, the root has all files that match, and no folders.
 *
 * @param walk Reads the pages that are shown, as far as they are there. It is called again when
 * more of them are.
 * @param isPolled Whether a page is read again every 30 s while the job runs.
 * @returns What `walk` returned, and the query of a page that could not be read.
 */
export function useOutputPages<T>(
  job: Job,
  { rank, find }: OutputFilter,
  walk: (read: (page: PageAddress) => OutputPage | undefined) => T,
  isPolled: (page: PageAddress) => boolean,
) {
  const client = useQueryClient();
  const optionsOf = ({ folder, cursor }: PageAddress) =>
    listOutputsOptions({
      path: { job_id: job.id },
      query: {
        limit: PAGE,
        nested: find !== "",
        ...(rank === undefined ? {} : { rank }),
        ...(find ? { find } : {}),
        ...(folder ? { folder } : {}),
        ...(cursor ? { cursor } : {}),
      },
    });
  const pages = new Map<string, PageAddress>();
  const walked = walk((page) => {
    pages.set(pageKey(page), page);
    return client.getQueryData(optionsOf(page).queryKey);
  });
  const queries = useQueries({
    queries: [...pages.values()].map((page) => {
      const polled = !isFinished(job) && isPolled(page);
      return {
        ...optionsOf(page),
        enabled: mayHaveOutputs(job),
        staleTime: POLL_MS,
        refetchInterval: polled ? POLL_MS : (false as const),
        refetchOnWindowFocus: polled,
      };
    }),
  });
  // All are looked at: with the data of another page the walk goes on.
  const failed = queries.filter(({ data, error }) => data === undefined && error !== null)[0];
  return { walked, failed };
}

/** The files whose paths have a folder `media`, where scripts log images, tables and histograms. */
export function useMediaFiles(job: Job) {
  const options = { path: { job_id: job.id }, query: { find: "media/" } };
  return useQuery({
    queryKey: listOutputsQueryKey(options),
    queryFn: () =>
      everyPage<Output>((cursor) =>
        listOutputs({ ...options, query: { ...options.query, ...(cursor ? { cursor } : {}) } }),
      ),
    enabled: mayHaveOutputs(job),
    refetchInterval: isFinished(job) ? false : POLL_MS,
  });
}

function addressOf(jobId: string): string {
  return `/api/v1/outputs/jobs/${encodeURIComponent(jobId)}`;
}

/** @param rank The lowest rank of the host whose files are in it; left out: those of all hosts. */
export function archiveUrl(jobId: string, rank?: number): string {
  return `${addressOf(jobId)}.tar${rank === undefined ? "" : `?rank=${rank}`}`;
}

/** @param rank The lowest rank of the host that wrote the file. */
export function fileUrl(jobId: string, path: string, rank = 0): string {
  const file = path.split("/").map(encodeURIComponent).join("/");
  // Without it the lowest rank's is meant, than which 0 is never higher.
  return `${addressOf(jobId)}/files/${file}${rank > 0 ? `?rank=${rank}` : ""}`;
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
  const url = new URL(fileUrl(jobId, file.path, file.rank), window.location.origin);
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
