import type { Job } from "@/shared/api/types";
import type { CurveSeries } from "@/shared/curves/series";
import type { CurveStore } from "@/shared/curves/store";
import { count, duration, metric, percent, si, toNumber } from "@/shared/format";
import { customNames } from "@/shared/live/metric-names";

/** A number that says how a job does, and what it is of. */
export interface Headline {
  name: string;
  label: string;
  text: string;
  /** Of which steps it is. */
  of: string;
}

/** Single steps are noise: a number is the mean of so many points. */
export const RECENT_POINTS = 20;
/** More make a table instead of a glance. */
const MOST = 6;

type Best = "least" | "most";
type Figure = [label: string, name: string, format: (value: number) => string, best?: Best];

const FIGURES: Figure[] = [
  ["Loss", "loss", metric],
  ["Held-out loss", "eval_loss", metric, "least"],
  ["Held-out accuracy", "eval_accuracy", metric, "most"],
  ["Samples per second", "samples_per_second", si],
  ["Step time", "step_seconds", duration],
];

/** What a job reports, told by the most telling number of each; nothing of what it does not report. */
export function headlines(job: Pick<Job, "metrics">, curves: CurveStore): Headline[] {
  const tell = (figures: Figure[]) =>
    figures.flatMap(([label, name, format, best]): Headline[] => {
      const series = curves.get(name);
      const found = series && (best ? bestOf(series, best) : recentMean(series));
      if (found) return [{ name, label, text: format(found.value), of: found.of }];
      const given = toNumber(job.metrics[name]);
      return given === null ? [] : [{ name, label, text: format(given), of: "the last step" }];
    });
  const own = customNames(job.metrics).map(
    (name): Figure => [inWords(name), name, name.endsWith("_per_second") ? si : metric],
  );
  return [...tell(FIGURES), ...bubble(curves), ...tell(own)].slice(0, MOST);
}

/** "bits_per_byte" as it is said: "Bits per byte". */
function inWords(name: string): string {
  const words = name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

interface Found {
  value: number;
  of: string;
}

/** The mean of the newest points; null when the newest is no number, which must not be hidden. */
export function recentMean(series: CurveSeries): Found | null {
  const end = series.length;
  const last = series.values[end - 1];
  if (last === null || last === undefined) return null;
  const begin = Math.max(0, end - RECENT_POINTS);
  const values = series.values.slice(begin, end).filter((value) => value !== null);
  const steps = (series.steps[end - 1] ?? 0) - (series.steps[begin] ?? 0) + 1;
  // Not every step may have reported it.
  const unit = steps === values.length ? "steps" : "reports";
  return {
    value: values.reduce((sum, value) => sum + value, 0) / values.length,
    of: values.length === 1 ? "the last step" : `mean of the last ${count(values.length)} ${unit}`,
  };
}

/** The best of all evaluations, and the newest when it is another. */
export function bestOf(series: CurveSeries, best: Best): Found | null {
  let at = -1;
  series.values.forEach((value, i) => {
    const before = series.values[at];
    if (value === null) return;
    if (before === null || before === undefined) at = i;
    // Of equals the newest.
    else if (best === "least" ? value <= before : value >= before) at = i;
  });
  const value = series.values[at];
  if (value === null || value === undefined) return null;
  const isNewest = at === series.length - 1;
  const newest = isNewest ? "" : `, now ${metric(series.last?.value)}`;
  return { value, of: `best, at step ${count(series.steps[at])}${newest}` };
}

/** How much of a step a pipeline's ranks wait for others, beside what its schedule makes them. */
function bubble(curves: CurveStore): Headline[] {
  const series = curves.get("bubble_fraction");
  const found = series && recentMean(series);
  if (!found) return [];
  const expected = curves.latest("bubble_fraction_expected");
  const beside = expected === null ? "" : ` · expected ${percent(100 * expected)}`;
  return [
    {
      name: "bubble_fraction",
      label: "Pipeline bubble",
      text: percent(100 * found.value),
      of: `${found.of}${beside}`,
    },
  ];
}
