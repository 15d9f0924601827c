import { Checkbox, Progress, Text, Tooltip } from "@mantine/core";
import {
  createColumnHelper,
  flexRender,
  getCoreRowModel,
  useReactTable,
} from "@tanstack/react-table";
import { plainText } from "@/shared/ansi";
import { useLastLine } from "@/shared/api/last-line";
import { isActive, type Job, tellsMore } from "@/shared/api/types";
import { useOnScreen } from "@/shared/curves/on-screen";
import { Sparkline } from "@/shared/curves/sparkline";
import { ranSeconds, useElapsed } from "@/shared/elapsed";
import { count, duration, metric } from "@/shared/format";
import { JobCommands } from "@/shared/job-commands";
import { AnchorLink } from "@/shared/ui/links";
import { Cell, ROW_CARDS } from "@/shared/ui/row-cards";
import { StateBadge } from "@/shared/ui/state-badge";
import { Ago } from "@/shared/ui/time";
import { Told } from "@/shared/ui/told";
import { useRecentLoss } from "./api/recent-loss";
import classes from "./jobs-table.module.css";

const column = createColumnHelper<Job>();

const columns = [
  column.display({
    id: "select",
    header: () => <span className="sr-only">Compare</span>,
    meta: { width: "36px" },
    cell: ({ row }) => (
      <Checkbox
        size="xs"
        aria-label={`Compare ${row.original.name}`}
        checked={row.getIsSelected()}
        disabled={!row.getCanSelect()}
        onChange={row.getToggleSelectedHandler()}
      />
    ),
  }),
  column.accessor("name", {
    header: "Job",
    meta: { width: "20%" },
    cell: ({ row: { original: job } }) => (
      <>
        <AnchorLink
          to="/jobs/$jobId"
          params={{ jobId: job.id }}
          className={classes.name ?? ""}
          title={job.name}
        >
          {job.name}
        </AnchorLink>
        <Text size="xs" c="dimmed" ff="monospace">
          {job.id.slice(0, 12)}
        </Text>
      </>
    ),
  }),
  column.accessor("state", {
    header: "State",
    meta: { width: "24%" },
    cell: ({ row: { original: job } }) => (
      <>
        <StateBadge state={job.state} />
        <Reason job={job} />
      </>
    ),
  }),
  column.accessor("step", {
    header: "Progress",
    meta: { width: "18%" },
    cell: ({ row: { original: job } }) => <JobProgress job={job} />,
  }),
  column.display({
    id: "loss",
    header: "Loss",
    meta: { width: "17%" },
    cell: ({ row: { original: job } }) => <Telling job={job} />,
  }),
  column.accessor("world_size", {
    header: "Workers",
    meta: { width: "7%", right: true },
    cell: (cell) => count(cell.getValue()),
  }),
  column.accessor("created_at", {
    header: "Submitted",
    meta: { width: "8%", right: true },
    cell: (cell) => <Ago value={cell.getValue()} />,
  }),
  column.display({
    id: "commands",
    header: () => <span className="sr-only">Commands</span>,
    meta: { width: "6%" },
    cell: ({ row: { original: job } }) => <JobCommands job={job} compact />,
  }),
];

interface Meta {
  width?: string;
  right?: boolean;
}

interface Props {
  jobs: Job[];
  /** Ids of the ticked jobs, in the order of their ticking. */
  ticked: string[];
  onTick: (ticked: string[]) => void;
}

export function JobsTable({ jobs, ticked, onTick }: Props) {
  const table = useReactTable({
    data: jobs,
    columns,
    getCoreRowModel: getCoreRowModel(),
    getRowId: (job) => job.id,
    state: { rowSelection: Object.fromEntries(ticked.map((id) => [id, true])) },
    onRowSelectionChange: (change) => {
      const before = Object.fromEntries(ticked.map((id) => [id, true]));
      const after = typeof change === "function" ? change(before) : change;
      const kept = ticked.filter((id) => after[id]);
      onTick([...kept, ...Object.keys(after).filter((id) => after[id] && !before[id])]);
    },
  });
  return (
    <div className={classes.frame}>
      <table className={`${classes.table} ${ROW_CARDS}`} aria-label="Jobs">
        <thead>
          {table.getHeaderGroups().map((group) => (
            <tr key={group.id}>
              {group.headers.map((header) => {
                const meta = header.column.columnDef.meta as Meta | undefined;
                return (
                  <th
                    key={header.id}
                    scope="col"
                    style={{ width: meta?.width }}
                    data-right={meta?.right}
                  >
                    {flexRender(header.column.columnDef.header, header.getContext())}
                  </th>
                );
              })}
            </tr>
          ))}
        </thead>
        <tbody>
          {table.getRowModel().rows.map((row) => (
            <tr key={row.id} data-job={row.id}>
              {row.getVisibleCells().map((cell) => (
                <Cell
                  key={cell.id}
                  name={cell.column.id}
                  data-right={(cell.column.columnDef.meta as Meta | undefined)?.right}
                >
                  {flexRender(cell.column.columnDef.cell, cell.getContext())}
                </Cell>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
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

/** What a state is due to; of a job that just completed, how long it ran. */
function Reason({ job }: { job: Job }) {
  const text = tellsMore(job) ? job.reason : ran(job);
  return (
    <Tooltip label={text} multiline maw={420} openDelay={300} disabled={text === ""}>
      <Text size="xs" c="dimmed" lineClamp={2} className={classes.reason ?? ""}>
        <Told text={text} />
      </Text>
    </Tooltip>
  );
}

function ran(job: Job): string {
  if (job.attempt === 0 || job.finished_at === null) return "";
  return `ran ${duration(ranSeconds(job, 0))}`;
}

/** Of a job that counts no steps. */
function Elapsed({ job }: { job: Job }) {
  return useElapsed(job);
}

/** Its loss; of a script that reports none, the last that it wrote. */
function Telling({ job }: { job: Job }) {
  const loss = job.metrics.loss as number | string | null | undefined;
  const silent = Boolean(job.spec.script) && (loss === undefined || loss === null);
  return silent ? <LastLine job={job} /> : <LiveLoss job={job} loss={loss} />;
}

function LastLine({ job }: { job: Job }) {
  const [cell, visible] = useOnScreen<HTMLDivElement>();
  const line = useLastLine(job.id, isActive(job.state), visible && job.attempt > 0);
  const text = line.data ? plainText(line.data.text) : "";
  return (
    <div ref={cell}>
      <Text size="xs" c="dimmed" ff="monospace" lineClamp={2} title={text}>
        {text}
      </Text>
    </div>
  );
}

interface LossProps {
  job: Job;
  loss: number | string | null | undefined;
}

function LiveLoss({ job, loss }: LossProps) {
  const [cell, visible] = useOnScreen<HTMLDivElement>();
  const recent = useRecentLoss(job.id, job.state, visible && job.step > 0);
  return (
    <div className={classes.loss} ref={cell}>
      {job.step > 0 ? (
        <>
          <Sparkline values={recent.data ?? []} label={`Loss of ${job.name} over its steps`} />
          <Text size="sm" className="numbers" title="Loss of the last step">
            {metric(loss)}
          </Text>
        </>
      ) : null}
    </div>
  );
}
