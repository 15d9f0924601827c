import { Select, Skeleton, Stack } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQueries, useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { listJobsOptions } from "@/client/@tanstack/react-query.gen";
import { jobOptions } from "@/shared/api/jobs";
import { ApiError } from "@/shared/api/problem";
import { type Job, MAX_COMPARED } from "@/shared/api/types";
import { Chart } from "@/shared/curves/chart/chart";
import { look } from "@/shared/curves/chart/palette";
import { Swatch } from "@/shared/curves/chart/swatch";
import { useArrangement } from "@/shared/curves/controls/arrange";
import { CurveControls, NoMatch } from "@/shared/curves/controls/controls";
import controls from "@/shared/curves/controls/controls.module.css";
import { type CurveView, rangeOf } from "@/shared/curves/controls/view";
import type { Spread } from "@/shared/curves/data/curve";
import { labelOf } from "@/shared/curves/jobs/labels";
import { panelsOf } from "@/shared/curves/jobs/panels";
import { configsOf } from "@/shared/curves/jobs/seeds";
import { comparedOf, isSettled, type Lives, useLives } from "@/shared/curves/jobs/use-lives";
import { count, metric } from "@/shared/format";
import { spansMagnitudes } from "@/shared/live/metric-names";
import { PageHeading } from "@/shared/page/heading";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { IconButton } from "@/shared/ui/icon-button";
import { CancelIcon } from "@/shared/ui/icons";
import { AnchorLink, ButtonLink } from "@/shared/ui/links";
import { StateBadge } from "@/shared/ui/state-badge";
import { CodeDifferences } from "./code-differences";
import classes from "./compare-page.module.css";
import { PackageDifferences } from "./package-differences";
import { ResultsTable } from "./results-table";
import { SeedChoice } from "./seed-choice";
import { added, formatSlots, parseSlots, removed, type Slots } from "./slots";
import { SpecDifferences } from "./spec-differences";

const route = getRouteApi("/compare");
/** Drawing many jobs is expensive, and nobody reads ten plots four times a second. */
const REDRAW_MS = 500;
const TYPING_MS = 150;
/** The link to the new report has them all. */
const MAX_METRICS = 8;

/** Several jobs on one chart per metric, and the differences of their specs. */
export default function ComparePage() {
  const view = route.useSearch();
  const navigate = route.useNavigate();
  const slots = useMemo(() => parseSlots(view.jobs), [view.jobs]);
  const ids = useMemo(() => slots.filter((id) => id !== null), [slots]);
  const queries = useQueries({ queries: ids.map((id) => jobOptions(id)) });
  const jobs = queries.flatMap(({ data }) => (data ? [data] : []));
  const configs = configsOf(jobs);
  useTitle(jobs.length > 0 ? `Compare ${jobs.map((job) => job.name).join(", ")}` : "Compare");
  const put = (next: Slots) =>
    void navigate({
      search: (old) => ({ ...old, jobs: formatSlots(next) || undefined }),
      resetScroll: false,
    });
  const missing = ids.filter((_, i) => {
    const error = queries[i]?.error;
    return error instanceof ApiError && error.status === 404;
  });
  return (
    <Stack gap="md">
      <PageHeading title="Compare">
        <AddJob slots={slots} onAdd={(id) => put(added(slots, id))} />
      </PageHeading>
      {ids.length === 0 ? (
        <Empty title="No jobs to compare">
          Select jobs in the <AnchorLink to="/jobs">list</AnchorLink>, or add one here.
        </Empty>
      ) : null}
      <ul className={classes.jobs} aria-label="Compared jobs">
        {jobs.map((job, i) => (
          <JobKey
            key={job.id}
            job={job}
            label={labelOf(job, jobs)}
            slot={slots.indexOf(view.seeds ? (configs[i] ?? job.id) : job.id)}
            onRemove={() => put(removed(slots, job.id))}
          />
        ))}
        {missing.map((id) => (
          <li key={id} className={`app-card ${classes.job}`}>
            <span>Job {id} not found</span>
            <Remove name={id} onRemove={() => put(removed(slots, id))} />
          </li>
        ))}
      </ul>
      <SpecDifferences jobs={jobs} />
      <PackageDifferences jobs={jobs} />
      <CodeDifferences jobs={jobs} />
      <ResultsTable jobs={jobs} />
      {ids.length > 0 && jobs.length === 0 && missing.length === 0 ? (
        <Skeleton height={300} />
      ) : null}
      {jobs.length > 0 ? (
        <Plots
          jobs={jobs}
          configs={configs}
          slots={slots}
          view={view}
          onView={(change) =>
            void navigate({
              search: (old) => ({ ...old, ...change }),
              replace: !("from" in change),
              resetScroll: false,
            })
          }
        />
      ) : null}
    </Stack>
  );
}

interface PlotsView extends CurveView {
  seeds?: Spread | undefined;
}

interface PlotsProps {
  jobs: Job[];
  /** Of each job; the same for those that differ in their seeds alone. */
  configs: string[];
  slots: Slots;
  view: PlotsView;
  onView: (change: PlotsView) => void;
}

function Plots({ jobs, configs, slots, view, onView }: PlotsProps) {
  const { x = "step", smooth = 0, log = false, from, to, seeds } = view;
  const [dragged, setDragged] = useState<number | null>(null);
  const range = useMemo(() => rangeOf({ from, to }), [from, to]);
  const ids = jobs.map(({ id }) => id);
  const lives = useLives(ids, range, x);
  const compared = comparedOf(jobs, lives, {
    slotOf: (job) => slots.indexOf(job.id),
    configs,
    isZoomed: range !== null,
  });
  const panels = panelsOf(compared, x, seeds);
  const { shown, pinOf } = useArrangement(panels, view.charts ?? "", isSettled(lives));
  return (
    <Stack gap="md">
      <CurveControls
        view={view}
        onChange={onView}
        onSmoothing={setDragged}
        metrics={[...new Set(compared.flatMap(({ all }) => all.jobWideNames()))]}
      >
        {new Set(configs).size < jobs.length ? (
          <SeedChoice value={seeds} onChange={(next) => onView({ seeds: next })} />
        ) : null}
        <ButtonLink
          size="compact-xs"
          variant="default"
          to="/reports/new"
          search={{
            chart: {
              jobs: ids,
              metric: shown.slice(0, MAX_METRICS).map(({ name }) => name),
              ...(x === "step" ? {} : { x }),
              ...(smooth === 0 ? {} : { smooth }),
              ...(log ? { log } : {}),
              ...(seeds ? { seeds } : {}),
            },
          }}
        >
          Add to a report
        </ButtonLink>
      </CurveControls>
      {panels.length === 0 ? <NoPoints lives={lives} /> : null}
      {panels.length > 0 && shown.length === 0 ? <NoMatch /> : null}
      <div className={controls.grid}>
        {shown.map((panel) => (
          <Chart
            key={panel.name}
            {...panel}
            pin={pinOf(panel.title)}
            trim={view.trim ?? false}
            logarithmic={log && spansMagnitudes(panel.name)}
            axis={x}
            smoothing={dragged ?? smooth}
            syncKey="compare"
            range={range}
            onRange={(chosen) => onView({ from: chosen?.from, to: chosen?.to })}
            redrawMs={REDRAW_MS}
          />
        ))}
      </div>
    </Stack>
  );
}

function NoPoints({ lives }: { lives: Lives }) {
  if (!isSettled(lives)) return <Empty title="Loading…" />;
  return <Empty title="No points yet">These jobs report no metrics.</Empty>;
}

interface JobKeyProps {
  job: Job;
  label: string;
  slot: number;
  onRemove: () => void;
}

function JobKey({ job, label, slot, onRemove }: JobKeyProps) {
  const main = job.main_metric;
  return (
    <li className={`app-card ${classes.job}`}>
      <Swatch look={look(slot)} width={22} strokeWidth={4} />
      <AnchorLink
        to="/jobs/$jobId"
        params={{ jobId: job.id }}
        size="sm"
        className={classes.name ?? ""}
      >
        {label}
      </AnchorLink>
      <StateBadge state={job.state} reason={job.reason} />
      <span className={classes.facts}>
        step {count(job.step)}
        {main === null ? "" : ` · latest ${main.name} ${metric(main.value)}`}
      </span>
      <Remove name={label} onRemove={onRemove} />
    </li>
  );
}

function Remove({ name, onRemove }: { name: string; onRemove: () => void }) {
  return (
    <IconButton label="Remove" name={`Remove ${name}`} size="sm" onClick={onRemove}>
      <CancelIcon />
    </IconButton>
  );
}

function AddJob({ slots, onAdd }: { slots: Slots; onAdd: (id: string) => void }) {
  const [text, setText] = useState("");
  const [search] = useDebouncedValue(text, TYPING_MS);
  const jobs = useQuery({
    ...listJobsOptions({ query: { search: search.trim() || undefined } }),
    placeholderData: keepPreviousData,
  });
  const all = jobs.data?.items ?? [];
  const others = all.filter((job) => !slots.includes(job.id));
  return (
    <Select
      size="xs"
      w={240}
      searchable
      searchValue={text}
      onSearchChange={setText}
      aria-label="Add a job"
      placeholder="Add a job"
      nothingFoundMessage="No other job"
      disabled={slots.filter((id) => id !== null).length >= MAX_COMPARED}
      data={others.map((job) => ({ value: job.id, label: labelOf(job, all) }))}
      value={null}
      onChange={(id) => {
        if (id === null) return;
        onAdd(id);
        setText("");
      }}
    />
  );
}
