import { type QueryKey, queryOptions, useQuery, useQueryClient } from "@tanstack/react-query";
import { getJob, listEvents, type ReadMetricsData, readLogs, readMetrics } from "@/client";
import { getJobOptions, getJobQueryKey } from "@/client/@tanstack/react-query.gen";
import { notifyProblem } from "../ui/notify";
import { PATIENCE_MS } from "./cluster";
import { everyPage } from "./pages";
import { isActive, type Job, type JobEvent, type LogLine, type Series } from "./types";

const HOSTS_MS = 10_000;
const LAST_LINE_MS = 3000;
const EVENTS_PAGE = 500;

/** The part that the keys of the pages of jobs on the screen share. */
export const JOBS_ON_SCREEN: QueryKey = [{ _id: "jobsOnScreen" }];

/** The part that the keys of a job, its attempts, checkpoints, gradients and metrics share. */
export function aboutJob(id: string): QueryKey {
  return [{ path: { job_id: id } }];
}

export function jobKey(id: string) {
  return getJobQueryKey({ path: { job_id: id } });
}

export function jobOptions(id: string) {
  const job = { path: { job_id: id } };
  return {
    ...getJobOptions(job),
    queryFn: () => getJob({ ...job, signal: AbortSignal.timeout(PATIENCE_MS) }),
  };
}

export function useJob(id: string) {
  return useQuery({
    ...jobOptions(id),
    // The job's stream reports its states, but nothing of its hosts.
    refetchInterval: ({ state: { data } }) => (data && isActive(data) ? HOSTS_MS : false),
  });
}

/** Callbacks of a command on a job: show its answer at once, renew the lists, report a failure. */
export function useJobChange(failure: string) {
  return {
    onSuccess: useJobChanged(),
    onError: (error: unknown) => notifyProblem(failure, error),
  };
}

/** The same for a command whose dialog shows the failure itself. */
export function useJobChanged() {
  const client = useQueryClient();
  return async (job: Job) => {
    client.setQueryData(jobKey(job.id), job);
    await client.invalidateQueries({ queryKey: JOBS_ON_SCREEN });
  };
}

/** Events after a sequence number, in order. */
export function readEvents(jobId: string, after: number): Promise<JobEvent[]> {
  return everyPage((cursor) =>
    listEvents({
      path: { job_id: jobId },
      query: { after, cursor, limit: EVENTS_PAGE },
    }),
  );
}

/** Series of a job, thinned to at most `max_points` points each. */
export async function readSeries(
  jobId: string,
  query: ReadMetricsData["query"],
  signal?: AbortSignal,
): Promise<Series[]> {
  return (await readMetrics({ path: { job_id: jobId }, query, signal })).series;
}

/** The newest line that any rank of a job wrote; null: none did. */
export function lastLineOptions(jobId: string, active: boolean) {
  return queryOptions({
    // Read once more when the job has ended.
    queryKey: [{ _id: "lastLine", path: { job_id: jobId }, active }],
    queryFn: async ({ signal }): Promise<LogLine | null> => {
      const page = await readLogs({ path: { job_id: jobId }, query: { tail: 1 }, signal });
      return page.items.at(-1) ?? null;
    },
    staleTime: active ? LAST_LINE_MS : Number.POSITIVE_INFINITY,
    refetchInterval: active ? LAST_LINE_MS : false,
    placeholderData: (before) => before,
  });
}
