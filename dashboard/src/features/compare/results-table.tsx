import { Text } from "@mantine/core";
import type { Job } from "@/shared/api/types";
import { spreadOf } from "@/shared/curves/data/spread";
import { labelOf } from "@/shared/curves/jobs/labels";
import { seedGroups } from "@/shared/curves/jobs/seeds";
import { NOTHING, plural } from "@/shared/format";
import { formatOf } from "@/shared/live/metric-names";
import { type Column, Table } from "@/shared/table/table";
import classes from "./compare-page.module.css";
import { type Result, resultsOf } from "./results";

const NAME: Column<Result> = {
  id: "name",
  header: "Latest value",
  rowHeader: true,
  cell: ({ name }) => <code>{name}</code>,
};

/** The latest metrics of jobs side by side, with mean and spread over those that differ in seeds. */
export function ResultsTable({ jobs }: { jobs: Job[] }) {
  const results = resultsOf(jobs);
  if (jobs.length < 2 || results.length === 0) return null;
  return (
    <details>
      <summary className={classes.fold}>Results: {plural(results.length, "metric")}</summary>
      <Table
        label="Results"
        columns={[
          NAME,
          ...jobs.map((job, i) => jobColumn(job, i, jobs)),
          ...seedGroups(jobs).map((group) => spreadColumn(group, jobs)),
        ]}
        rows={results}
        rowKey={({ name }) => name}
        className={classes.diff}
        cards
      />
    </details>
  );
}

function jobColumn(job: Job, i: number, jobs: Job[]): Column<Result> {
  return {
    id: job.id,
    header: labelOf(job, jobs),
    right: true,
    cell: ({ name, values, best }) => {
      const value = values[i] ?? null;
      if (value === null) return NOTHING;
      const text = formatOf(name)(value);
      return value === best ? <b title="best">{text}</b> : text;
    },
  };
}

function spreadColumn(group: readonly number[], jobs: Job[]): Column<Result> {
  const names = group.map((i) => jobs[i]).map((job) => (job ? labelOf(job, jobs) : ""));
  return {
    id: `spread ${group.join()}`,
    header: (
      <span title={names.join(", ")}>
        mean ± SD of {group.length} seeds
        <Text size="xs" c="dimmed" truncate maw={220}>
          {names.join(", ")}
        </Text>
      </span>
    ),
    right: true,
    cell: ({ name, values }) => {
      const spread = spreadOf(group.map((i) => values[i] ?? null));
      if (spread === null) return NOTHING;
      const format = formatOf(name);
      return `${format(spread.mean)} ± ${format(spread.deviation)}`;
    },
  };
}
