import { Stack } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import type { Job } from "@/shared/api/types";
import type { Range } from "@/shared/curves/axis";
import { Chart } from "@/shared/curves/chart";
import { CurveControls } from "@/shared/curves/controls";
import controls from "@/shared/curves/controls.module.css";
import type { CurveStore } from "@/shared/curves/store";
import { rangeOf } from "@/shared/curves/view";
import { type JobLive, originOf } from "@/shared/live/job-live";
import { spansMagnitudes } from "@/shared/live/metric-names";
import { useSignal } from "@/shared/live/signal";
import { useCurveVersion } from "@/shared/live/use-job-live";
import { Empty } from "@/shared/ui/empty";
import { DeviceUse } from "./device-use";
import { panelsOf, ranksOf } from "./panels";
import { SaveMetrics } from "./save-metrics";
import { endedWithoutStep } from "./tabs";

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
  const known = useKnown(live.curves);
  const origin = originOf(job);
  const panels = useMemo(
    () => panelsOf(live.curves, store, { origin, ranks, known }),
    [live, store, origin, ranks, known],
  );
  const change = (next: Partial<typeof view>) =>
    void navigate({
      search: (old) => ({ ...old, ...next }),
      replace: !("from" in next),
      resetScroll: false,
    });
  const zoom = (chosen: Range | null) => change({ from: chosen?.from, to: chosen?.to });
  // Devices know no steps: then their charts are about the clock, all of it.
  const devices = (
    <DeviceUse
      job={job}
      axis={x === "elapsed" ? "elapsed" : "time"}
      range={x === "step" ? null : range}
      onRange={x === "step" ? () => undefined : zoom}
    />
  );
  if (panels.length === 0) {
    return (
      <Stack gap="md">
        <NoCurves job={job} live={live} />
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
        hasRanks={ranksOf(live.curves).length > 0}
      >
        <SaveMetrics job={job} />
      </CurveControls>
      <div className={controls.grid}>
        {panels.map((panel) => (
          <Chart
            key={panel.title}
            {...panel}
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
      {devices}
    </Stack>
  );
}

/** The store to draw from: of a part of the axis the exact one, as soon as it is there. */
function useZoomed(
  live: JobLive,
  range: { from: number; to: number } | null,
  axis: "step" | "time" | "elapsed",
): CurveStore {
  useEffect(() => live.zoom(range, axis), [live, range, axis]);
  const shown = useSignal(live.window);
  return range !== null && shown?.ready ? shown.store : live.curves;
}

/** Which series have points; changes when one comes, not with every point. */
function useKnown(curves: CurveStore): string {
  useCurveVersion(curves);
  return [...curves.names().sort(), ranksOf(curves).join()].join();
}

function NoCurves({ job, live }: Props) {
  const { phase } = useSignal(live.status);
  if (phase === "connecting") return <Empty title="Reading…" />;
  if (job.spec.script) {
    return (
      <Empty title="This script has reported no metrics">
        What it prints is under Logs. A script that logs metrics through Trainhall's SDK gets curves
        here.
      </Empty>
    );
  }
  if (endedWithoutStep(job)) {
    return <Empty title="This job finished no step">Why stands under What happened.</Empty>;
  }
  return <Empty title="No points yet">Curves begin with the first finished step.</Empty>;
}
