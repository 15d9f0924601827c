import type { Job } from "@/shared/api/types";
import type { CurveSeries } from "@/shared/curves/data/series";
import type { CurveStore } from "@/shared/curves/data/store";
import { count, metric, percent, toNumber, valueAt } from "@/shared/format";
import {
  customNames,
  formatOf,
  impliedGoal,
  isValidation,
  labelOf,
} from "@/shared/live/metric-names";

/** A headline metric of a job. */
interface Headline {
  name: string;
  label: string;
  text: string;
  /** The steps that it covers: "mean of the last 20 steps". */
  of: string;
}

/** Points that are averaged, since a single step is noise. */
export const RECENT_POINTS = 20;
/** Tiles that fit into one row. */
const MAX_TILES = 6;

/** The value of a series to show: its best one, its latest, or the mean of its newest points. */
type Aggregate = "min" | "max" | "latest" | "mean";

interface Figure {
  name: string;
  aggregate: Aggregate;
}

const FIGURES: Figure[] = [
  { name: "loss", aggregate: "mean" },
  { name: "eval_loss", aggregate: "min" },
  { name: "eval_accuracy", aggregate: "max" },
  { name: "samples_per_second", aggregate: "mean" },
  { name: "step_seconds", aggregate: "mean" },
];

type Reporting = Pick<Job, "metrics" | "main_metric" | "spec">;

/** The headline metrics that a job reports: its main metric, then the most important ones. */
export function headlines(job: Reporting, curves: CurveStore): Headline[] {
  const main = mainFigure(job);
  const tile = ({ name, aggregate }: Figure): Headline[] => {
    const [label, format] = [labelOf(name), formatOf(name)];
    const series = curves.get(name);
    const found = series && summary(series, aggregate);
    if (found) return [{ name, label, text: format(found.value), of: found.of }];
    // The job's own value may be of steps that a later attempt repeats: the curves know better.
    if (curves.names().length > 0 && series === undefined) return [];
    const reported = toNumber(valueAt(job.metrics, name));
    return reported === null ? [] : [{ name, label, text: format(reported), of: "latest step" }];
  };
  const others = (figures: Figure[]) =>
    figures.filter(({ name }) => name !== main?.name).flatMap(tile);
  return [
    ...(main ? tile(main) : []),
    ...others(FIGURES),
    ...bubble(curves),
    ...others(customNames(job.metrics).map(figureOf)),
  ].slice(0, MAX_TILES);
}

function mainFigure({ main_metric: main, spec }: Reporting): Figure | null {
  if (main === null) return null;
  const figure = FIGURES.find(({ name }) => name === main.name) ?? figureOf(main.name);
  // A training loss is noisy at every step: its best value says little, unless it was asked for.
  const averaged = !spec?.metric && figure.aggregate === "mean";
  return averaged ? figure : { ...figure, aggregate: main.goal ?? "latest" };
}

/** A validation metric is rated by its best value, others by their mean. */
function figureOf(name: string): Figure {
  return { name, aggregate: isValidation(name) ? (impliedGoal(name) ?? "latest") : "mean" };
}

function summary(series: CurveSeries, aggregate: Aggregate): Summary | null {
  if (aggregate === "mean") return recentMean(series);
  return aggregate === "latest" ? latest(series) : bestOf(series, aggregate);
}

interface Summary {
  value: number;
  of: string;
}

/** The mean of the newest points; null when the newest is not finite, which must not be hidden. */
function recentMean(series: CurveSeries): Summary | null {
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
    of: values.length === 1 ? "latest step" : `mean of the last ${count(values.length)} ${unit}`,
  };
}

function latest(series: CurveSeries): Summary | null {
  const { step, value } = series.last ?? { step: 0, value: null };
  return value === null ? null : { value, of: `latest, at step ${count(step)}` };
}

/** The best point, the first of equal ones, and the latest one if it is another. */
function bestOf(series: CurveSeries, goal: "min" | "max"): Summary | null {
  let at = -1;
  series.values.forEach((value, i) => {
    const before = series.values[at];
    if (value === null) return;
    if (before === null || before === undefined) at = i;
    else if (goal === "min" ? value < before : value > before) at = i;
  });
  const value = series.values[at];
  if (value === null || value === undefined) return null;
  const isNewest = at === series.length - 1;
  const latest = isNewest ? "" : `, latest ${metric(series.last?.value)}`;
  return { value, of: `best, at step ${count(series.steps[at])}${latest}` };
}

/** The share of a step that a pipeline's ranks are idle, and the share that its schedule implies. */
function bubble(curves: CurveStore): Headline[] {
  const series = curves.get("bubble_fraction");
  const found = series && recentMean(series);
  if (!found) return [];
  const expected = curves.latest("bubble_fraction_expected");
  const comparison = expected === null ? "" : ` · expected ${percent(100 * expected)}`;
  return [
    {
      name: "bubble_fraction",
      label: "Pipeline bubble",
      text: percent(100 * found.value),
      of: `${found.of}${comparison}`,
    },
  ];
}
