import { Button, Tooltip } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { readSeries } from "@/shared/api/jobs";
import type { Job } from "@/shared/api/types";
import { curvesCsv, saveCsv } from "@/shared/curves/data/csv";
import { CurveSeries } from "@/shared/curves/data/series";
import { count, toNumber } from "@/shared/format";
import { jobWideNames, TIMING } from "@/shared/live/metric-names";
import { DownIcon } from "@/shared/ui/icons";
import { notifyProblem } from "@/shared/ui/notify";

/** More than spreadsheets open well; a longer job is downsampled. */
const MAX_ROWS = 100_000;

/** Downloads all stored metrics of a job as one table. */
export function SaveMetrics({ job }: { job: Job }) {
  const save = useMutation({
    mutationFn: () => allMetrics(job),
    onSuccess: (text) => saveCsv(`${job.id}-metrics.csv`, text),
    onError: (error) => notifyProblem("Could not load the metrics", error),
  });
  return (
    <Tooltip
      label={`All metrics, one row per step; downsampled beyond ${count(MAX_ROWS)} steps`}
      openDelay={300}
    >
      <Button
        size="compact-xs"
        variant="default"
        leftSection={<DownIcon />}
        loading={save.isPending}
        onClick={() => save.mutate()}
      >
        Download CSV
      </Button>
    </Tooltip>
  );
}

export async function allMetrics(job: Pick<Job, "id" | "metrics">): Promise<string> {
  const names = [...jobWideNames(job.metrics), ...TIMING];
  const columns: { name: string; series: CurveSeries }[] = [];
  // One after the other: all series of a long job at once would be too large.
  for (const name of names.filter((each) => each in job.metrics)) {
    const series = await readSeries(job.id, { names: [name], max_points: MAX_ROWS });
    const jobWide = series.find(({ rank }) => rank === null || rank === undefined);
    if (jobWide === undefined) continue;
    const points = new CurveSeries(Number.POSITIVE_INFINITY);
    points.append(
      jobWide.points.map(({ step, time, value }) => ({
        step,
        time: Date.parse(time) / 1000,
        value: toNumber(value),
      })),
    );
    columns.push({ name, series: points });
  }
  return curvesCsv(columns);
}
