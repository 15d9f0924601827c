import { Checkbox } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { linkOptions } from "@tanstack/react-router";
import { createContext, memo, useContext, useMemo } from "react";
import { plainText } from "@/shared/ansi";
import { lastLineOptions } from "@/shared/api/jobs";
import { hasReason, isActive, isFinished, isRun, type Job } from "@/shared/api/types";
import { Sparkline } from "@/shared/curves/chart/sparkline";
import { ranSeconds, useElapsed } from "@/shared/elapsed";
import { count, duration, metric, NOTHING, plural, valueAt } from "@/shared/format";
import { JobCommands } from "@/shared/job-commands";
import { Owner } from "@/shared/owners/owner";
import { IdText } from "@/shared/page/id-text";
import { Tags } from "@/shared/page/tags";
import { Later } from "@/shared/table/later";
import { ProgressBar } from "@/shared/table/progress-bar";
import { RowCheckbox } from "@/shared/table/row-checkbox";
import { RowLink } from "@/shared/table/row-link";
import { type Column, Table } from "@/shared/table/table";
import { LinkedText } from "@/shared/ui/linked-text";
import { StateBadge } from "@/shared/ui/state-badge";
import { Ago } from "@/shared/ui/time";
import { recentMetricOptions } from "../api/recent-metric";
import { type ColumnId, type Columns, DEFAULT_COLUMNS, titleOf, valueIn } from "./columns";
import classes from "./jobs-table.module.css";
import { direction, firstSort, nextSort, type Sort } from "./sort";

/** Width in pixels, and the cell, of the columns that have more than a value. */
const OWN: Record<ColumnId, Pick<Column<Job>, "right" | "cell"> & { px: number }> = {
  name: { px: 220, cell: (job) => <JobName job={job} /> },
  state: {
    px: 220,
    cell: (job) => (
      <>
        <StateBadge state={job.state} />
        <Reason job={job} />
      </>
    ),
  },
  step: { px: 175, cell: (job) => <JobProgress job={job} /> },
  metric: { px: 210, cell: (job) => <MetricOrLastLine job={job} /> },
  world_size: {
    px: 80,
    right: true,
    cell: (job) => (isRun(job) ? NOTHING : count(job.world_size)),
  },
  created_at: { px: 110, right: true, cell: (job) => <Ago value={job.created_at} /> },
  started_at: { px: 110, right: true, cell: (job) => <When value={job.started_at} /> },
  finished_at: { px: 110, right: true, cell: (job) => <When value={job.finished_at} /> },
  duration: { px: 150, right: true, cell: (job) => <Elapsed job={job} /> },
  gpu_hours: { px: 100, right: true, cell: (job) => metric(job.gpu_hours) },
  user: { px: 110, cell: (job) => <Owner of={job} /> },
  project: { px: 120, cell: (job) => job.project },
  tags: { px: 160, cell: (job) => <Tags tags={job.tags} /> },
  task: { px: 130, cell: taskOf },
  strategy: { px: 120, cell: strategyOf },
  priority: { px: 90, right: true, cell: (job) => count(job.priority) },
};
const VALUE_PX = 120;
const SELECT_PX = 40;
const COMMANDS_PX = 80;

const COMMANDS: Column<Job> = {
  id: "commands",
  header: "Commands",
  hidden: true,
  width: `${COMMANDS_PX}px`,
  cell: (job) => {
    const commands = <JobCommands job={job} compact />;
    return isFinished(job) ? commands : <Later>{commands}</Later>;
  },
};

function columnOf(id: ColumnId): Column<Job> {
  const { px, ...own } = OWN[id] ?? { px: VALUE_PX, right: true, cell: valueCell(id) };
  const extra = DEFAULT_COLUMNS.includes(id) ? {} : { className: classes.extra };
  return { id, header: titleOf(id), width: `${px}px`, ...own, ...extra };
}

/** The value of a parameter or a metric. */
function valueCell(id: ColumnId): (job: Job) => React.ReactNode {
  const value = valueIn(id);
  if (value?.kind === "parameter") {
    return (job) => {
      const given = valueAt(job.parameters, value.name);
      return typeof given === "number" ? metric(given) : given === undefined ? NOTHING : `${given}`;
    };
  }
  return (job) => {
    const { name = "", aggregate = null } = value ?? {};
    if (aggregate === null) return metric(valueAt(job.metrics, name));
    return metric(valueAt(job.metric_ranges, name)?.[aggregate === "min" ? 0 : 1]);
  };
}

function taskOf(job: Job): string {
  if (isRun(job)) return "run";
  return (job.spec?.task as { name?: string } | null)?.name ?? "script";
}

function strategyOf(job: Job): string {
  return (job.spec?.parallelism as { strategy?: string } | undefined)?.strategy ?? NOTHING;
}

function widthOf(column: Column<Job>): number {
  return Number.parseInt(column.width ?? "0", 10);
}

interface Props {
  jobs: Job[];
  columns: Columns;
  /** Ids of the selected jobs, in the order of their selection. */
  selected: string[];
  onSelect: (selected: string[]) => void;
  sort: Sort;
  onSort: (sort: Sort) => void;
  onScreen?: (first: number, last: number) => void;
}

const rowKey = (job: Job) => job.id;
const rowProps = (job: Job) => ({ "data-job": job.id });

function Jobs({ jobs, columns, selected, onSelect, sort, onSort, onScreen }: Props) {
  const byMetric = firstSort("metric", jobs, sort);
  const { ids, pinned } = columns;
  const shown = useMemo((): Column<Job>[] => {
    const select: Column<Job> = {
      id: "select",
      header: <SelectAll selected={selected} onSelect={onSelect} />,
      width: `${SELECT_PX}px`,
      cell: ({ id, name }) => (
        <RowCheckbox
          label={`Select ${name}`}
          checked={selected.includes(id)}
          onChange={(checked) =>
            onSelect(checked ? [...selected, id] : selected.filter((each) => each !== id))
          }
        />
      ),
    };
    const sortable = ids.map(columnOf).map((column) => {
      const first = column.id === "metric" ? byMetric : firstSort(column.id, [], sort);
      if (first === undefined) return column;
      const onPress = () => onSort(nextSort(first, sort));
      return { ...column, sort: { direction: direction(first, sort), onPress } };
    });
    let left = 0;
    const all = [select, ...sortable].map((column, i) => {
      if (pinned === 0 || i > pinned) return column;
      const placed = { ...column, left };
      left += widthOf(column);
      return placed;
    });
    return [...all, COMMANDS];
  }, [ids, pinned, selected, onSelect, sort, onSort, byMetric]);
  return (
    <Listed value={jobs}>
      <Table
        label="Jobs"
        columns={shown}
        rows={jobs}
        rowKey={rowKey}
        rowProps={rowProps}
        className={classes.table}
        minWidth={shown.reduce((sum, column) => sum + widthOf(column), 0)}
        cards
        virtual
        {...(onScreen ? { onScreen } : {})}
      />
    </Listed>
  );
}

export const JobsTable = memo(Jobs);

/** More would make the URL too long. */
const MAX_SELECTED = 500;

/** A property would draw all rows again with every poll. */
const Listed = createContext<readonly Job[]>([]);

function SelectAll({ selected, onSelect }: Pick<Props, "selected" | "onSelect">) {
  const jobs = useContext(Listed);
  const first = jobs.slice(0, MAX_SELECTED).map(({ id }) => id);
  const all = first.length > 0 && first.every((id) => selected.includes(id));
  return (
    <Checkbox
      size="xs"
      aria-label={`Select the ${plural(first.length, "listed job")}`}
      checked={all}
      indeterminate={!all && selected.length > 0}
      onChange={() => onSelect(all ? [] : first)}
    />
  );
}

function JobName({ job }: { job: Job }) {
  return (
    <>
      <RowLink
        link={linkOptions({ to: "/jobs/$jobId", params: { jobId: job.id } })}
        className={classes.name ?? ""}
        title={job.name}
      >
        {job.name}
      </RowLink>
      <div className={classes.identity}>
        <IdText id={job.id.slice(0, 12)} />
        <Tags tags={job.tags} />
      </div>
    </>
  );
}

function When({ value }: { value: string | null }) {
  return value === null ? NOTHING : <Ago value={value} />;
}

function JobProgress({ job }: { job: Job }) {
  if (!job.total_steps) {
    return (
      <p className={`small numbers ${job.step === 0 ? "dimmed" : ""}`}>
        {job.step > 0 ? `step ${count(job.step)}` : <Elapsed job={job} />}
      </p>
    );
  }
  const share = Math.min(100, (100 * job.step) / job.total_steps);
  return (
    <div className={classes.progress}>
      <ProgressBar value={share} label={`Progress of ${job.name}`} />
      <p className="small numbers">
        {count(job.step)} / {count(job.total_steps)}
      </p>
    </div>
  );
}

/** The reason of a state; for a job without one, how long it ran. */
function Reason({ job }: { job: Job }) {
  const text = hasReason(job) ? job.reason : ran(job);
  return (
    <p className={`small dimmed two-lines ${classes.reason}`} title={text}>
      <LinkedText text={text} />
    </p>
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
  const silent = Boolean(job.spec?.script) && job.main_metric === null;
  if (!silent) return <MainMetric job={job} />;
  return (
    <Later>
      <LastLine job={job} />
    </Later>
  );
}

function LastLine({ job }: { job: Job }) {
  const line = useQuery({
    ...lastLineOptions(job.id, isActive(job)),
    enabled: job.attempt > 0,
  });
  const text = line.data ? plainText(line.data.text) : "";
  return (
    <p className="small dimmed mono two-lines" title={text}>
      {text}
    </p>
  );
}

function MainMetric({ job }: { job: Job }) {
  const main = job.main_metric;
  if (main === null || main.value === null) return null;
  return (
    <div className={classes.metric}>
      <div className={classes.curve}>
        <Later>
          <Curve job={job} name={main.name} />
        </Later>
      </div>
      <div className={classes.value} title={`Latest ${main.name}`}>
        <div className="numbers">{metric(main.value)}</div>
        <p className="small dimmed">latest {main.name}</p>
      </div>
    </div>
  );
}

function Curve({ job, name }: { job: Job; name: string }) {
  const recent = useQuery(recentMetricOptions(job));
  return <Sparkline values={recent.data ?? []} label={`${name} of ${job.name} over its steps`} />;
}
