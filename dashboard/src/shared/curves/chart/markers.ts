import type uPlot from "uplot";
import { type Axis, metricOf } from "@/shared/curves/data/axis";
import type { Curve } from "@/shared/curves/data/curve";
import { lastAtOrBefore } from "@/shared/curves/data/points";
import { resolved } from "./palette";

/** Something that happened to a job, at a position of its curves. */
export interface Marker {
  kind: "checkpoint" | "evaluation" | "resume" | "restart" | "resize";
  step: number;
  /** Seconds since the epoch. */
  time: number;
  label: string;
}

const COLORS: Record<Marker["kind"], string> = {
  checkpoint: "var(--curve-2)",
  evaluation: "var(--curve-3)",
  resume: "var(--curve-7)",
  restart: "var(--curve-1)",
  resize: "var(--curve-6)",
};
/** Distance in pixels within which the cursor is at a marker. */
const REACH = 5;
const TICK = 5;

/** The position of a marker beside a curve; NaN if the axis shows a metric that had no value yet. */
function positionOf({ step, time }: Marker, axis: Axis, curve: Curve | undefined): number {
  const metric = metricOf(axis);
  if (metric !== null) {
    const over = curve?.store.get(metric);
    return over?.values[lastAtOrBefore(over.steps, step)] ?? Number.NaN;
  }
  return axis === "step" ? step : axis === "time" ? time : time - (curve?.origin ?? 0);
}

/** Checkpoints as triangles on the axis, evaluations as triangles at the top, all others as lines. */
export function markerPlugin(
  markers: () => readonly Marker[],
  axis: Axis,
  curve: Curve | undefined,
): uPlot.Plugin {
  const draw = (plot: uPlot): void => {
    const { ctx, bbox } = plot;
    const bottom = bbox.top + bbox.height;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const marker of markers()) {
      const x = Math.round(plot.valToPos(positionOf(marker, axis, curve), "x", true));
      ctx.strokeStyle = ctx.fillStyle = resolved(COLORS[marker.kind]);
      ctx.beginPath();
      if (marker.kind === "checkpoint" || marker.kind === "evaluation") {
        const [edge, up] = marker.kind === "checkpoint" ? [bottom, -1] : [bbox.top, 1];
        ctx.moveTo(x - TICK * ratio, edge);
        ctx.lineTo(x + TICK * ratio, edge);
        ctx.lineTo(x, edge + up * 1.6 * TICK * ratio);
        ctx.fill();
      } else {
        ctx.setLineDash([3 * ratio, 3 * ratio]);
        ctx.lineWidth = 1.5 * ratio;
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bottom);
        ctx.stroke();
      }
    }
    ctx.restore();
  };
  return { hooks: { draw } };
}

/** The labels of the markers at the cursor. */
export function markersAt(
  plot: uPlot,
  markers: readonly Marker[],
  axis: Axis,
  curve: Curve | undefined,
): string {
  const { left = -1 } = plot.cursor;
  if (left < 0) return "";
  const isNear = (marker: Marker) =>
    Math.abs(plot.valToPos(positionOf(marker, axis, curve), "x") - left) <= REACH;
  return [...new Set(markers.filter(isNear).map(({ label }) => label))].join(" · ");
}
