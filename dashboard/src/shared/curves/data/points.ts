import { type Axis, metricOf, positions } from "./axis";
import { type Curve, type Points, runsOf, seriesOf, type Values } from "./curve";
import type { CurveSeries } from "./series";
import { meanOf } from "./spread";

const NO_POINTS: Points = { at: [], values: [], mins: [], maxs: [] };

/** The points of a curve on an axis. */
export function pointsOf(curve: Curve, axis: Axis): Points {
  if (curve.runs && curve.spread) {
    return meanOf(
      curve.runs.map((run) => pointsOf(run, axis)),
      curve.spread,
    );
  }
  const series = seriesOf(curve);
  if (series === undefined) return NO_POINTS;
  const metric = metricOf(axis);
  if (metric === null)
    return { ...columnsOf(series), at: positions(series, axis, curve.origin ?? 0) };
  const over = curve.store.get(metric);
  return over === undefined ? NO_POINTS : joinedByStep(series, over);
}

/**
 * A series over the values of another one: each point of the sparser series with the newest point of the
 * other at or before its step, since only thinned series and evaluations have steps of their own. Of
 * points at one position the newest stays.
 */
export function joinedByStep(series: CurveSeries, over: CurveSeries): Points {
  const pairs =
    over.length < series.length
      ? over.steps.map((step, i) => [lastAtOrBefore(series.steps, step), i] as const)
      : series.steps.map((step, i) => [i, lastAtOrBefore(over.steps, step)] as const);
  const places = new Map<number, number>();
  for (const [index, overIndex] of pairs) {
    const at = over.values[overIndex] ?? null;
    if (at !== null && index >= 0) places.set(at, index);
  }
  const sorted = [...places].sort(([a], [b]) => a - b);
  const column = (values: Values) => sorted.map(([, index]) => values[index] ?? null);
  // Where the axis goes back and forth, an area between neighbours means nothing.
  const none = isMonotonic(over) ? null : sorted.map(() => null);
  return {
    at: sorted.map(([at]) => at),
    values: column(series.values),
    mins: none ?? column(series.mins),
    maxs: none ?? column(series.maxs),
  };
}

/** Whether points over a metric are not in the order of their steps, so that no line joins them. */
export function isScattered(curve: Curve, axis: Axis): boolean {
  const metric = metricOf(axis);
  if (metric === null) return false;
  const overs = runsOf(curve).map(({ store }) => store.get(metric));
  return overs.some((over) => over !== undefined && !isMonotonic(over));
}

function isMonotonic({ values }: CurveSeries): boolean {
  const known = values.filter((value) => value !== null);
  const rises = known.slice(1).map((value, i) => value - (known[i] ?? value));
  return rises.every((rise) => rise >= 0) || rises.every((rise) => rise <= 0);
}

function columnsOf({ values, mins, maxs }: CurveSeries) {
  return { values, mins, maxs };
}

/** The index of the last of sorted numbers that is not above a limit; -1 if there is none. */
export function lastAtOrBefore(sorted: readonly number[], limit: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
