import { Checkbox, Progress, Text, Tooltip } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { plainText } from "@/shared/ansi";
import { lastLineOptions } from "@/shared/api/jobs";
import { hasReason, isActive, type Job } from "@/shared/api/types";
import { Sparkline } from "@/shared/curves/chart/sparkline";
import { ranSeconds, useElapsed } from "@/shared/elapsed";
import { count, duration, metric } from "@/shared/format";
import { JobCommands } from "@/shared/job-commands";
import { IdText } from "@/shared/page/id-text";
import { Tags } from "@/shared/page/tags";
import { LinkedText } from "@/shared/ui/linked-text";
import { AnchorLink } from "@/shared/ui/links";
import { StateBadge } from "@/shared/ui/state-badge";
import { type Column, Table } from "@/shared/ui/table";
import { Ago } from "@/shared/ui/time";
import { recentMetricOptions } from "./api/recent-metric";
import classes from "./jobs-table.module.css";
import { direction, firstSort, nextSort, type Sort } from "./sort";

const COLUMNS: Column<Job>[] = [
  {
    id: "name",
    header: "Job",
    width: "20%",
    cell: (job) => (
      <>
        <AnchorLink
          to="/jobs/$jobId"
          params={{ jobId: job.id }}
          size="sm"
          fw={600}
          display="block"
          truncate
          title={job.name}
        >
          {job.name}
        </AnchorLink>
        <div className={classes.identity}>
          <IdText id={job.id.slice(0, 12)} />
          <Tags tags={job.tags} />
        </div>
      </>
    ),
  },
  {
    id: "state",
    header: "State",
    width: "24%",
    cell: (job) => (
      <>
        <StateBadge state={job.state} />
        <Reason job={job} />
      </>
    ),
  },
  { id: "step", header: "Progress", width: "18%", cell: (job) => <JobProgress job={job} /> },
  { id: "metric", header: "Metric", width: "17%", cell: (job) => <MetricOrLastLine job={job} /> },
  {
    id: "workers",
    header: "Workers",
    width: "7%",
    right: true,
    cell: (job) => count(job.world_size),
  },
  {
    id: "submitted",
    header: "Submitted",
    width: "8%",
    right: true,
    cell: (job) => <Ago value={job.created_at} />,
  },
  {
    id: "commands",
    header: "Commands",
    hidden: true,
    width: "6%",
    cell: (job) => <JobCommands job={job} compact />,
  },
];

interface Props {
  jobs: Job[];
  /** Ids of the selected jobs, in the order of their selection. */
  selected: string[];
  onSelect: (selected: string[]) => void;
  sort: Sort;
  onSort: (sort: Sort) => void;
  onScreen: (first: number, last: number) => void;
}

const rowKey = (job: Job) => job.id;
const rowProps = (job: Job) => ({ "data-job": job.id });

export function JobsTable({ jobs, selected, onSelect, sort, onSort, onScreen }: Props) {
  const byMetric = firstSort("metric", jobs, sort);
  const columns = useMemo((): Column<Job>[] => {
    const select: Column<Job> = {
      id: "select",
      header: "Compare",
      hidden: true,
      width: "36px",
      cell: ({ id, name }) => (
        <Checkbox
          size="xs"
          aria-label={`Compare ${name}`}
          checked={selected.includes(id)}
          onChange={({ currentTarget: { checked } }) =>
            onSelect(checked ? [...selected, id] : selected.filter((each) => each !== id))
          }
        />
      ),
    };
    const sortable = COLUMNS.map((column) => {
      const first = column.id === "metric" ? byMetric : firstSort(column.id, [], sort);
      if (first === undefined) return column;
      const onPress = () => onSort(nextSort(first, sort));
      return { ...column, sort: { direction: direction(first, sort), onPress } };
    });
    return [select, ...sortable];
  }, [selected, onSelect, sort, onSort, byMetric]);
  return (
    <Table
      label="Jobs"
      columns={columns}
      rows={jobs}
      rowKey={rowKey}
      rowProps={rowProps}
      className={classes.table}
      cards
      virtual
      onScreen={onScreen}
    />
  );
}

function JobProgress({ job }: { job: Job }) {
  if (!job.total_steps) {
    return (
      <Text size="xs" {...(job.step === 0 ? { c: "dimmed" } : {})} className="numbers">
        {job.step > 0 ? `step ${count(job.step)}` : <Elapsed job={job} />}
      </Text>
    );
  }
  const share = Math.min(100, (100 * job.step) / job.total_steps);
  return (
    <div className={classes.progress}>
      <Progress value={share} size="sm" aria-label={`Progress of ${job.name}`} />
      <Text size="xs" className="numbers">
        {count(job.step)} / {count(job.total_steps)}
      </Text>
    </div>
  );
}

/** The reason of a state; for a job without one, how long it ran. */
function Reason({ job }: { job: Job }) {
  const text = hasReason(job) ? job.reason : ran(job);
  return (
    <Tooltip label={text} multiline maw={420} openDelay={300} disabled={text === ""}>
      <Text size="xs" c="dimmed" lineClamp={2} className={classes.reason ?? ""}>
        <LinkedText text={text} />
      </Text>
    </Tooltip>
  );
}

function ran(job: Job): string {
  if (job.attempt === 0 || job.finished_at === null) return "";
  return `ran ${duration(ranSeconds(job, 0))}`;
}

/** How long a job without a step count has run. */
function Elapsed({ job }: { job: Job }) {
  return useElapsed(job);
}

/** The main metric; for a script that reports none, the last line of its output. */
function MetricOrLastLine({ job }: { job: Job }) {
  const silent = Boolean(job.spec.script) && job.main_metric === null;
  return silent ? <LastLine job={job} /> : <MainMetric job={job} />;
}

function LastLine({ job }: { job: Job }) {
  const line = useQuery({
    ...lastLineOptions(job.id, isActive(job)),
    enabled: job.attempt > 0,
  });
  const text = line.data ? plainText(line.data.text) : "";
  return (
    <Text size="xs" c="dimmed" ff="monospace" lineClamp={2} title={text}>
      {text}
    </Text>
  );
}

function MainMetric({ job }: { job: Job }) {
  const recent = useQuery(recentMetricOptions(job));
  const main = job.main_metric;
  return (
    <div className={classes.metric}>
      {main === null || main.value === null ? null : (
        <>
          <Sparkline
            values={recent.data ?? []}
            label={`${main.name} of ${job.name} over its steps`}
          />
          <div className={classes.value} title={`Latest ${main.name}`}>
            <Text size="sm" className="numbers">
              {metric(main.value)}
            </Text>
            <Text size="xs" c="dimmed" lineClamp={2} className={classes.reason ?? ""} mt={0}>
              latest {main.name}
            </Text>
          </div>
        </>
      )}
    </div>
  );
}
