import { type Axis, metricOf } from "@/shared/curves/data/axis";
import type { Points } from "@/shared/curves/data/curve";
import { lastAtOrBefore } from "@/shared/curves/data/points";
import { count, duration, moment } from "@/shared/format";
import { formatOf } from "@/shared/live/metric-names";

type Format = (value: number | null) => string;

/** The index of the newest point at or before a position of the cursor, or of all; -1 when there is none. */
function indexAt({ at }: Points, cursor: number | null): number {
  return cursor === null ? at.length - 1 : lastAtOrBefore(at, cursor);
}

/**
 * The legend's value of a curve: its newest point, or with a cursor the point there. Without a point
 * there it is the one before, with its position; no value is interpolated.
 */
export function legendText(
  points: Points,
  axis: Axis,
  cursor: number | null,
  format: Format,
  showExtremes: boolean,
): string {
  const index = indexAt(points, cursor);
  const at = points.at[index];
  if (at === undefined) return format(null);
  const [value = null, min = null, max = null] = [points.values, points.mins, points.maxs].map(
    (column) => column[index],
  );
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
  const metric = metricOf(axis);
  return metric === null ? moment(at * 1000) : `${metric} ${formatOf(metric)(at)}`;
}

/** The indexes of curves in the order of the legend: with a cursor by their values there, the highest first. */
export function legendOrder(curves: readonly Points[], cursor: number | null): readonly number[] {
  const indexes = curves.map((_, i) => i);
  if (cursor === null) return indexes;
  const values = curves.map((points) => points.values[indexAt(points, cursor)] ?? -Infinity);
  return indexes.sort((a, b) => (values[b] ?? 0) - (values[a] ?? 0));
}
