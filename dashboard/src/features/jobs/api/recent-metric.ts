import { queryOptions } from "@tanstack/react-query";
import { readSeries } from "@/shared/api/jobs";
import { isActive, type Job } from "@/shared/api/types";
import { toNumber } from "@/shared/format";

const POINTS = 48;
const POLL_MS = 3000;

/** The shape of a job's main metric over its steps. */
export function recentMetricOptions(job: Pick<Job, "id" | "main_metric" | "running_since">) {
  const active = isActive(job);
  const name = job.main_metric?.name ?? "";
  return queryOptions({
    // Read once more when the job has ended.
    queryKey: [{ _id: "recentMetric", path: { job_id: job.id }, active, name }],
    queryFn: async ({ signal }): Promise<(number | null)[]> => {
      const found = await readSeries(job.id, { names: [name], max_points: POINTS }, signal);
      const series = found.find(({ rank }) => rank === null);
      return series?.points.map(({ value }) => toNumber(value)) ?? [];
    },
    // Without a value there is no series yet.
    enabled: (job.main_metric?.value ?? null) !== null,
    staleTime: active ? POLL_MS : Number.POSITIVE_INFINITY,
    refetchInterval: active ? POLL_MS : false,
    placeholderData: (before, query) => (query?.queryKey[0]?.name === name ? before : undefined),
  });
}
