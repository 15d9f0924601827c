import type { CurveSeries } from "./series";

/** Units of the horizontal axis: optimizer steps, wall time, seconds since the job's start, or a metric's. */
const AXES = ["step", "time", "elapsed"] as const;
export type Axis = (typeof AXES)[number] | `metrics.${string}`;

export function isAxis(value: unknown): value is Axis {
  return AXES.includes(value as never) || /^metrics\..{1,256}$/.test(String(value));
}

/** The metric of an axis; null if it shows steps or times. */
export function metricOf(axis: Axis): string | null {
  return axis.startsWith("metrics.") ? axis.slice("metrics.".length) : null;
}

/** Distances between the ticks of an axis of bytes: 64 MiB, 128 MiB… instead of 95.4 MiB. */
export const BYTE_TICKS = Array.from({ length: 53 }, (_, power) => 2 ** power);

/** A part of the horizontal axis, in its units: steps, seconds since the epoch, or seconds. */
export interface Range {
  from: number;
  to: number;
}

/** A series' points on an axis of steps or times. `origin` is the zero of relative time, in seconds. */
export function positions(series: CurveSeries, axis: Axis, origin: number): readonly number[] {
  if (axis === "step") return series.steps;
  return increasing(series.times, axis === "elapsed" ? origin : 0);
}

/** The range of an axis that shows all positions, which are in order. */
export function extentOf(at: ArrayLike<number>, axis: Axis): Range {
  const from = at[0];
  const to = at[at.length - 1];
  if (from === undefined || to === undefined) return { from: 0, to: 1 };
  const padding = from === to ? paddingAt(from, axis) : 0;
  return { from: from - padding, to: to + padding };
}

/** Padding on either side of a single point. */
function paddingAt(at: number, axis: Axis): number {
  if (axis === "step") return 1;
  return metricOf(axis) === null ? 30 : Math.abs(at) / 10 || 1;
}

/** Makes times increasing: clocks may be set back, but a chart needs its x values in order. */
function increasing(times: readonly number[], origin: number): number[] {
  let latest = -Infinity;
  return times.map((time) => {
    const at = time - origin;
    latest = at > latest ? at : latest + 1e-6;
    return latest;
  });
}

/**
 * The steps that a range of an axis shows, read off a series (of a metric's axis: the metric's own); null
 * when the series has no points. Where the series is coarse, the result is too wide rather than too narrow.
 */
export function stepsWithin(
  range: Range,
  axis: Axis,
  series: CurveSeries | undefined,
  origin: number,
): { first: number; last: number } | null {
  if (axis === "step") {
    return { first: Math.max(0, Math.ceil(range.from)), last: Math.max(0, Math.floor(range.to)) };
  }
  if (series === undefined || series.length === 0) return null;
  if (metricOf(axis) !== null) return stepsOf(series, range);
  const at = positions(series, axis, origin);
  let begin = 0;
  while (begin < at.length - 1 && (at[begin + 1] ?? 0) < range.from) begin += 1;
  let end = at.length - 1;
  while (end > begin && (at[end - 1] ?? 0) > range.to) end -= 1;
  return { first: series.steps[begin] ?? 0, last: series.steps[end] ?? 0 };
}

/** The steps from the first to the last value in a range, with a neighbour on either side. */
function stepsOf({ steps, values }: CurveSeries, { from, to }: Range) {
  const isInside = (value: number | null) => value !== null && value >= from && value <= to;
  const first = values.findIndex(isInside);
  if (first < 0) return null;
  const last = values.findLastIndex(isInside);
  return { first: steps[Math.max(0, first - 1)] ?? 0, last: steps[last + 1] ?? steps[last] ?? 0 };
}
