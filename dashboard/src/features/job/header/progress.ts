import type { CurveSeries } from "@/shared/curves/data/series";

const RECENT_SECONDS = 60;

/** Seconds per step over the last minute of points; null when there are too few to tell. */
export function pace(series: CurveSeries | undefined): number | null {
  if (series === undefined || series.length < 2) return null;
  const end = series.length - 1;
  const lastTime = series.times[end] ?? 0;
  let begin = end - 1;
  // An older point may be one before a pause.
  while (begin > 0 && (series.times[begin - 1] ?? 0) > lastTime - RECENT_SECONDS) begin -= 1;
  const steps = (series.steps[end] ?? 0) - (series.steps[begin] ?? 0);
  const seconds = lastTime - (series.times[begin] ?? 0);
  return steps > 0 && seconds > 0 ? seconds / steps : null;
}

/** Seconds until the last step at the current pace. */
export function secondsLeft(
  series: CurveSeries | undefined,
  step: number,
  total: number | null,
): number | null {
  const each = pace(series);
  return each === null || total === null ? null : Math.max(0, total - step) * each;
}
