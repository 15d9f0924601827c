import { Stack, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { endedWithoutStep } from "@/features/job/tabs";
import { isRun, type Job } from "@/shared/api/types";
import { Chart } from "@/shared/curves/chart/chart";
import { useArrangement } from "@/shared/curves/controls/arrange";
import { CurveControls, NoMatch } from "@/shared/curves/controls/controls";
import controls from "@/shared/curves/controls/controls.module.css";
import { rangeOf } from "@/shared/curves/controls/view";
import type { Axis, Range } from "@/shared/curves/data/axis";
import type { CurveStore } from "@/shared/curves/data/store";
import { type JobLive, originOf } from "@/shared/live/job-live";
import { spansMagnitudes } from "@/shared/live/metric-names";
import { useSignal } from "@/shared/live/signal";
import { useCurveVersion } from "@/shared/live/use-job-live";
import { Empty } from "@/shared/ui/empty";
import { DeviceUse } from "./device-use";
import { evaluationsOf, markersOf } from "./markers";
import { Media } from "./media";
import { panelsOf, ranksOf } from "./panels";
import { RankHeatMap } from "./rank-heat-map";
import { SaveMetrics } from "./save-metrics";
import { sectionsOf } from "./sections";

const route = getRouteApi("/jobs/$jobId");

interface Props {
  job: Job;
  live: JobLive;
}

export default function CurvesTab({ job, live }: Props) {
  const view = route.useSearch();
  const { x = "step", smooth = 0, log = false, ranks = false, from, to } = view;
  const navigate = route.useNavigate();
  const [dragged, setDragged] = useState<number | null>(null);
  const range = useMemo(() => rangeOf({ from, to }), [from, to]);
  const store = useZoomed(live, range, x);
  const seriesKey = useSeriesKey(live.curves);
  const origin = originOf(job);
  const mainMetric = job.main_metric?.name;
  const panels = useMemo(
    () => panelsOf(live.curves, store, { origin, ranks, seriesKey, mainMetric }),
    [live, store, origin, ranks, seriesKey, mainMetric],
  );
  const events = useSignal(live.events);
  const evaluations = evaluationsOf(live.curves);
  const lastEvaluation = evaluations.at(-1)?.step;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the last one stands for them all
  const markers = useMemo(
    () => [...evaluations, ...markersOf(events)],
    [events, lastEvaluation, evaluations.length],
  );
  const { phase } = useSignal(live.status);
  const { shown, pinOf } = useArrangement(panels, view.charts ?? "", phase !== "connecting");
  const change = (next: Partial<typeof view>) =>
    void navigate({
      search: (old) => ({ ...old, ...next }),
      replace: !("from" in next),
      resetScroll: false,
    });
  const zoom = (chosen: Range | null) => change({ from: chosen?.from, to: chosen?.to });
  // Device readings have no steps: over steps and metrics their charts show all of the wall time.
  const isTime = x === "time" || x === "elapsed";
  const devices = (
    <DeviceUse
      job={job}
      axis={isTime ? x : "time"}
      range={isTime ? range : null}
      onRange={isTime ? zoom : () => undefined}
    />
  );
  if (panels.length === 0) {
    return (
      <Stack gap="md">
        <NoCurves job={job} live={live} />
        <Media job={job} />
        {devices}
      </Stack>
    );
  }
  return (
    <Stack gap="md">
      <CurveControls
        view={view}
        onChange={change}
        onSmoothing={setDragged}
        metrics={live.curves.jobWideNames()}
        hasRanks={ranksOf(live.curves).length > 0}
      >
        <SaveMetrics job={job} />
      </CurveControls>
      {shown.length === 0 ? <NoMatch /> : null}
      {sectionsOf(shown, (title) => pinOf(title).pinned).map(({ prefix, panels: own }) => (
        <section key={prefix} aria-label={prefix || "Curves"}>
          {prefix ? (
            <Text component="h3" size="sm" fw={600} mb="xs">
              {prefix}
            </Text>
          ) : null}
          <div className={controls.grid}>
            {own.map((panel) => (
              <Chart
                key={panel.title}
                {...panel}
                markers={markers}
                trim={view.trim ?? false}
                pin={pinOf(panel.title)}
                logarithmic={
                  log && !panel.stacked && panel.curves.every((c) => spansMagnitudes(c.name))
                }
                axis={x}
                smoothing={dragged ?? smooth}
                syncKey={job.id}
                range={range}
                onRange={zoom}
              />
            ))}
          </div>
        </section>
      ))}
      <RankHeatMap
        jobId={job.id}
        curves={store}
        metric={view.heat}
        onMetric={(heat) => change({ heat })}
      />
      <Media job={job} />
      {devices}
    </Stack>
  );
}

/** The store to draw from: with a zoom the exact one of its window, as soon as it is loaded. */
function useZoomed(
  live: JobLive,
  range: { from: number; to: number } | null,
  axis: Axis,
): CurveStore {
  useEffect(() => live.zoom(range, axis), [live, range, axis]);
  const shown = useSignal(live.window);
  return range !== null && shown?.ready ? shown.store : live.curves;
}

/** The set of series that have points, as text; does not change with every point. */
function useSeriesKey(curves: CurveStore): string {
  useCurveVersion(curves);
  return [...curves.names().sort(), ranksOf(curves).join()].join();
}

function NoCurves({ job, live }: Props) {
  const { phase } = useSignal(live.status);
  if (phase === "connecting") return <Empty title="Loading…" />;
  if (isRun(job)) {
    return <Empty title="No metrics logged">What the run's client logs appears here.</Empty>;
  }
  if (job.spec?.script) {
    return (
      <Empty title="No metrics reported">
        The script's output is under Logs. Metrics that it reports through the Trainhall SDK or
        MLflow appear here as curves.
      </Empty>
    );
  }
  if (endedWithoutStep(job)) {
    return <Empty title="The job ended before its first step">The Timeline shows why.</Empty>;
  }
  return <Empty title="No points yet">Curves appear after the first step.</Empty>;
}
