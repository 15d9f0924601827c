import { Select, Skeleton, Stack } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQueries, useQuery, useQueryClient } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
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
import type { Axis, Range } from "@/shared/curves/data/axis";
import type { Spread } from "@/shared/curves/data/curve";
import { count, metric } from "@/shared/format";
import { JobLive, originOf } from "@/shared/live/job-live";
import { spansMagnitudes } from "@/shared/live/metric-names";
import { PageHeading } from "@/shared/page/heading";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { IconButton } from "@/shared/ui/icon-button";
import { CancelIcon } from "@/shared/ui/icons";
import { AnchorLink } from "@/shared/ui/links";
import { StateBadge } from "@/shared/ui/state-badge";
import classes from "./compare-page.module.css";
import { labelOf } from "./labels";
import { type Compared, panelsOf } from "./panels";
import { configsOf } from "./results";
import { ResultsTable } from "./results-table";
import { SeedChoice } from "./seed-choice";
import { added, formatSlots, parseSlots, removed, type Slots } from "./slots";
import { SpecDifferences } from "./spec-differences";

const route = getRouteApi("/compare");
/** Drawing many jobs is expensive, and nobody reads ten plots four times a second. */
const REDRAW_MS = 500;
const TIMING = ["step_seconds"];
const TYPING_MS = 150;

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
  const lives = useLives(jobs.map((job) => job.id).join(), range, x);
  const compared = jobs.flatMap((job, i): Compared[] => {
    const live = lives.get(job.id);
    if (live === undefined) return [];
    const shown = live.window.value;
    return [
      {
        label: labelOf(job, jobs),
        slot: slots.indexOf(job.id),
        config: configs[i] ?? job.id,
        mainMetric: job.main_metric?.name,
        all: live.curves,
        shown: range !== null && shown?.ready ? shown.store : live.curves,
        origin: originOf(job),
      },
    ];
  });
  const panels = panelsOf(compared, x, seeds);
  const isSettled = [...lives.values()].every(({ status }) => status.value.phase !== "connecting");
  const { shown, pinOf } = useArrangement(panels, view.charts ?? "", lives.size > 0 && isSettled);
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

function NoPoints({ lives }: { lives: Map<string, JobLive> }) {
  const all = [...lives.values()];
  if (all.length === 0 || all.some((live) => live.status.value.phase === "connecting")) {
    return <Empty title="Loading…" />;
  }
  return <Empty title="No points yet">These jobs report no metrics.</Empty>;
}

/** Follows every compared job; renders again when one has loaded, or has a new series. */
function useLives(ids: string, range: Range | null, axis: Axis): Map<string, JobLive> {
  const queries = useQueryClient();
  const followed = useRef(new Map<string, JobLive>());
  const [lives, setLives] = useState<Map<string, JobLive>>(new Map());
  const [, render] = useState("");
  useEffect(() => {
    const wanted = ids.split(",");
    for (const id of wanted) {
      if (followed.current.has(id)) continue;
      const live = new JobLive(id, queries, TIMING);
      followed.current.set(id, live);
      live.start();
    }
    for (const [id, live] of followed.current) {
      if (wanted.includes(id)) continue;
      live.stop();
      followed.current.delete(id);
    }
    setLives(new Map(followed.current));
  }, [ids, queries]);
  useEffect(
    () => () => {
      for (const live of followed.current.values()) live.stop();
      followed.current.clear();
    },
    [],
  );
  useEffect(() => {
    const all = [...lives.values()];
    const update = () =>
      render(
        all
          .map(({ curves, window, status }) => [
            ...curves.names(),
            window.value?.ready,
            status.value.phase === "connecting",
          ])
          .join(";"),
      );
    const unsubscribe = all.flatMap(({ curves, window, status }) =>
      [curves, window, status].map((each) => each.subscribe(update)),
    );
    return () => {
      for (const each of unsubscribe) each();
    };
  }, [lives]);
  useEffect(() => {
    for (const live of lives.values()) live.zoom(range, axis);
  }, [lives, range, axis]);
  return lives;
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
