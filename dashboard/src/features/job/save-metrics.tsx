import { Button, Tooltip } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { readMetrics } from "@/shared/api/read-metrics";
import type { Job } from "@/shared/api/types";
import { curvesCsv, saveText } from "@/shared/curves/csv";
import { CurveSeries } from "@/shared/curves/series";
import { count, toNumber } from "@/shared/format";
import { jobWideNames, TIMING } from "@/shared/live/metric-names";
import { DownIcon } from "@/shared/ui/icons";
import { notifyProblem } from "@/shared/ui/notify";

/** More rows make a file that no table opens; of a longer job the points are thinned. */
const MOST_ROWS = 100_000;

/** Everything that a job reports as one table, as it is stored and not as it is drawn. */
export function SaveMetrics({ job }: { job: Job }) {
  const save = useMutation({
    mutationFn: () => allMetrics(job),
    onSuccess: (text) => saveText(`${job.id}-metrics.csv`, text),
    onError: (error) => notifyProblem("The metrics could not be read", error),
  });
  return (
    <Tooltip
      label={`Every metric of the job, a row a step; behind ${count(MOST_ROWS)} steps thinned`}
      openDelay={300}
    >
      <Button
        size="compact-xs"
        variant="default"
        leftSection={<DownIcon />}
        loading={save.isPending}
        onClick={() => save.mutate()}
      >
        All as CSV
      </Button>
    </Tooltip>
  );
}

export async function allMetrics(job: Pick<Job, "id" | "metrics">): Promise<string> {
  const names = [...jobWideNames(job.metrics), ...TIMING];
  const columns: { name: string; series: CurveSeries }[] = [];
  // One after the other: together a long job's would be too much at once.
  for (const name of names.filter((each) => each in job.metrics)) {
    const found = await readMetrics(job.id, { names: [name], maxPoints: MOST_ROWS });
    const own = found.find(({ rank }) => rank === null || rank === undefined);
    if (own === undefined) continue;
    const series = new CurveSeries(Number.POSITIVE_INFINITY);
    series.append(
      own.points.map(({ step, time, value }) => ({
        step,
        time: Date.parse(time) / 1000,
        value: toNumber(value),
      })),
    );
    columns.push({ name, series });
  }
  return curvesCsv(columns);
}
