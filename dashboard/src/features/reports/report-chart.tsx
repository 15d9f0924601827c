import { Alert, List, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { listJobsOptions } from "@/client/@tanstack/react-query.gen";
import { type Job, MAX_COMPARED } from "@/shared/api/types";
import { Chart } from "@/shared/curves/chart/chart";
import { useLingering, useOnScreen } from "@/shared/curves/chart/on-screen";
import controls from "@/shared/curves/controls/controls.module.css";
import type { Range } from "@/shared/curves/data/axis";
import { panelsOf } from "@/shared/curves/jobs/panels";
import { configsOf } from "@/shared/curves/jobs/seeds";
import { comparedOf, isSettled, useLives } from "@/shared/curves/jobs/use-lives";
import { plural } from "@/shared/format";
import { spansMagnitudes } from "@/shared/live/metric-names";
import { AnchorLink } from "@/shared/ui/links";
import { Pending } from "@/shared/ui/problem";
import { type ChartBlock, parseBlock } from "./chart-block";
import classes from "./reports.module.css";

/** New jobs of a query appear this late. */
const POLL_MS = 10_000;
const REDRAW_MS = 500;

/** The charts that a block of a report describes, or what is wrong with it. */
export function ReportChart({ text }: { text: string }) {
  const parsed = useMemo(() => parseBlock(text), [text]);
  const [frame, isOnScreen] = useOnScreen<HTMLDivElement>();
  const isFollowed = useLingering(isOnScreen);
  const [height, setHeight] = useState(0);
  useEffect(() => {
    if (!isOnScreen) setHeight(frame.current?.offsetHeight ?? 0);
  }, [isOnScreen, frame]);
  return (
    // Off screen no job is followed; the place stays as large, so that nothing below it moves.
    <div
      ref={frame}
      className={classes.chart}
      style={isFollowed || height === 0 ? undefined : { minHeight: height }}
    >
      {"errors" in parsed ? (
        <Alert color="red" variant="light" title="This chart cannot be drawn" role="alert">
          <List size="sm">
            {parsed.errors.map((error) => (
              <List.Item key={error}>{error}</List.Item>
            ))}
          </List>
          <pre>{text}</pre>
        </Alert>
      ) : isFollowed ? (
        <JobsChart block={parsed.block} />
      ) : null}
    </div>
  );
}

function JobsChart({ block }: { block: ChartBlock }) {
  const list = useQuery({
    ...listJobsOptions({ query: { query: block.query, limit: MAX_COMPARED } }),
    refetchInterval: POLL_MS,
    placeholderData: keepPreviousData,
  });
  if (!list.data) return <Pending query={list} what="the jobs of this chart" height={280} />;
  const { items, next_cursor } = list.data;
  return <Curves jobs={inOrder(items, block.jobs)} block={block} hasMore={next_cursor !== null} />;
}

interface CurvesProps {
  jobs: Job[];
  block: ChartBlock;
  /** The query finds more jobs than are drawn. */
  hasMore: boolean;
}

function Curves({ jobs, block, hasMore }: CurvesProps) {
  const { x, smooth, log, seeds, metrics } = block;
  const [range, setRange] = useState<Range | null>(null);
  const ids = jobs.map(({ id }) => id);
  const lives = useLives(ids, null, x);
  const compared = comparedOf(jobs, lives, {
    slotOf: (_job, i) => i,
    configs: configsOf(jobs),
    isZoomed: false,
  });
  const all = panelsOf(compared, x, seeds);
  const panels = metrics.flatMap((metric) => all.filter(({ name }) => name === metric));
  const gone = hasMore ? [] : block.jobs.filter((id) => !ids.some((found) => found.startsWith(id)));
  const unknown = metrics.filter((metric) => !all.some(({ name }) => name === metric));
  return (
    <>
      <div className={controls.grid}>
        {panels.map((panel) => (
          <Chart
            key={panel.name}
            {...panel}
            logarithmic={log && spansMagnitudes(panel.name)}
            axis={x}
            smoothing={smooth}
            syncKey="report"
            range={range}
            onRange={setRange}
            redrawMs={REDRAW_MS}
          />
        ))}
      </div>
      <Text size="xs" c="dimmed" component="div">
        {jobs.length === 0 ? "No job matches yet: check names and ids, or wait for one." : null}
        {gone.map((id) => `Job ${id} not found. `)}
        {jobs.length > 0 && !isSettled(lives) ? "Loading…" : null}
        {isSettled(lives) && unknown.length > 0
          ? `No points yet of ${unknown.join(", ")}; these jobs report ${names(all)}. `
          : null}
        {jobs.length > 0 ? (
          <AnchorLink
            size="xs"
            to="/compare"
            search={{
              jobs: ids.join(),
              x,
              smooth: smooth || undefined,
              log: log || undefined,
              seeds,
            }}
          >
            {hasMore ? `The newest ${plural(jobs.length, "job")}` : plural(jobs.length, "job")}
          </AnchorLink>
        ) : null}
      </Text>
    </>
  );
}

function names(panels: readonly { name: string }[]): string {
  return panels.map(({ name }) => name).join(", ") || "no metrics";
}

/** The jobs as they are listed in the block; without a list, as they are. */
function inOrder(jobs: Job[], ids: readonly string[]): Job[] {
  const place = ({ id }: Job) => ids.findIndex((each) => id.startsWith(each));
  return jobs.toSorted((a, b) => place(a) - place(b));
}
