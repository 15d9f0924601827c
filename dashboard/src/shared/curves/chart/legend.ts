import { type Axis, positions } from "@/shared/curves/data/axis";
import { type Curve, seriesOf } from "@/shared/curves/data/curve";
import { count, duration, moment } from "@/shared/format";

type Format = (value: number | null) => string;

/** The point of a curve that the legend shows. */
interface LegendPoint {
  /** Its position on the axis. */
  at: number;
  value: number | null;
  /** Extremes of a bucket of points. */
  min: number | null;
  max: number | null;
}

/** The newest point at or before a position of the cursor, or of all; null when there is none. */
function pointAt(curve: Curve, axis: Axis, cursor: number | null): LegendPoint | null {
  const series = seriesOf(curve);
  if (series === undefined) return null;
  const at = positions(series, axis, curve.origin ?? 0);
  const index = cursor === null ? at.length - 1 : lastAtOrBefore(at, cursor);
  if (index < 0) return null;
  return {
    at: at[index] ?? 0,
    value: series.values[index] ?? null,
    min: series.mins[index] ?? null,
    max: series.maxs[index] ?? null,
  };
}

function lastAtOrBefore(sorted: readonly number[], limit: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/**
 * The legend's value of a curve: its newest point, or with a cursor the point there. Without a point
 * there it is the one before, with its position; no value is interpolated.
 */
export function legendText(
  curve: Curve,
  axis: Axis,
  cursor: number | null,
  format: Format,
  showExtremes: boolean,
): string {
  const point = pointAt(curve, axis, cursor);
  if (point === null) return format(null);
  const { at, value, min, max } = point;
  const extremes =
    showExtremes && cursor !== null && min !== null && max !== null && min !== max
      ? ` (${format(min)} to ${format(max)})`
      : "";
  const position = cursor === null || at === cursor ? "" : ` (${positionText(at, axis)})`;
  return `${format(value)}${extremes}${position}`;
}

export function positionText(at: number, axis: Axis): string {
  if (axis === "step") return `step ${count(Math.round(at))}`;
  if (axis === "elapsed") return at < 0 ? `−${duration(-at)}` : duration(at);
  return moment(at * 1000);
}

/** The indexes of curves in the order of the legend: with a cursor by their values there, the highest first. */
export function legendOrder(
  curves: readonly Curve[],
  axis: Axis,
  cursor: number | null,
): readonly number[] {
  const indexes = curves.map((_, i) => i);
  if (cursor === null) return indexes;
  const values = curves.map((curve) => pointAt(curve, axis, cursor)?.value ?? -Infinity);
  return indexes.sort((a, b) => (values[b] ?? 0) - (values[a] ?? 0));
}
