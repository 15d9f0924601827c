import type { CurveSeries } from "@/shared/curves/data/series";

const RECENT_SECONDS = 60;

/** Seconds per step over the points of the last minute, none before `since` (in seconds since the
 * epoch), so that a pause or a restart counts as no step; null when there are too few to tell. */
function pace(series: CurveSeries | undefined, since: number): number | null {
  if (series === undefined) return null;
  const end = series.length - 1;
  const lastTime = series.times[end] ?? 0;
  let begin = end;
  for (let at = end - 1; at >= 0 && (series.times[at] ?? 0) > since; at -= 1) {
    // One point before the last in any case: steps may take longer than a minute.
    if (begin < end && (series.times[at] ?? 0) <= lastTime - RECENT_SECONDS) break;
    begin = at;
  }
  const steps = (series.steps[end] ?? 0) - (series.steps[begin] ?? 0);
  const seconds = lastTime - (series.times[begin] ?? 0);
  return steps > 0 && seconds > 0 ? seconds / steps : null;
}

/** Seconds until the last step at the pace that the job has had since a time. */
export function secondsLeft(
  series: CurveSeries | undefined,
  since: number,
  step: number,
  total: number,
): number | null {
  const each = pace(series, since);
  return each === null ? null : Math.max(0, total - step) * each;
}
