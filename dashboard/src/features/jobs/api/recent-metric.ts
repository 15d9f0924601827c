import { queryOptions } from "@tanstack/react-query";
import { readSeries } from "@/shared/api/jobs";
import { isActive, type Job } from "@/shared/api/types";
import { toNumber } from "@/shared/format";

const POINTS = 48;
const POLL_MS = 3000;

/** Values of one metric in order, for a sparkline. */
export interface RecentMetric {
  name: string;
  values: (number | null)[];
}

/** The shape of a job's main metric over its steps; of `loss` while it has too few points. */
export function recentMetricOptions(
  job: Pick<Job, "id" | "main_metric" | "metrics" | "running_since">,
) {
  const active = isActive(job);
  const names = [job.main_metric?.name, "loss"].filter((name) => name && name in job.metrics);
  return queryOptions({
    // Read once more when the job has ended.
    queryKey: [{ _id: "recentMetric", path: { job_id: job.id }, active, names }],
    queryFn: async ({ signal }): Promise<RecentMetric | null> => {
      const query = { names: [...new Set(names)] as string[], max_points: POINTS };
      const found = await readSeries(job.id, query, signal);
      const series = names
        .map((name) => found.find((each) => each.name === name && each.rank === null))
        .find((each) => (each?.points.length ?? 0) > 1);
      if (series === undefined) return null;
      return { name: series.name, values: series.points.map(({ value }) => toNumber(value)) };
    },
    enabled: names.length > 0,
    staleTime: active ? POLL_MS : Number.POSITIVE_INFINITY,
    refetchInterval: active ? POLL_MS : false,
    placeholderData: (before) => before,
  });
}
