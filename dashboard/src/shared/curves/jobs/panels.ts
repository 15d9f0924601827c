import { look } from "@/shared/curves/chart/palette";
import type { Axis } from "@/shared/curves/data/axis";
import { type Curve, hasPoints, type Spread } from "@/shared/curves/data/curve";
import { isScattered } from "@/shared/curves/data/points";
import type { CurveStore } from "@/shared/curves/data/store";
import { formatOf, isKnown, isValidation, labelOf } from "@/shared/live/metric-names";

/** A compared job: its points, and the slot that decides its colour. */
export interface Compared {
  label: string;
  slot: number;
  /** Jobs with the same one differ in their seeds alone. */
  config: string;
  mainMetric: string | undefined;
  /** All points, and those to draw: with a zoom only the window's. */
  all: CurveStore;
  shown: CurveStore;
  /** The zero of relative time, in seconds since the epoch. */
  origin: number;
}

export interface Panel {
  title: string;
  name: string;
  curves: Curve[];
  format: (value: number | null) => string;
  /** Values are bytes. */
  binary: boolean;
}

const ORDER = [
  "loss",
  "eval_loss",
  "accuracy",
  "eval_accuracy",
  "samples_per_second",
  "step_seconds",
  "learning_rate",
  "gradient_norm",
];

/**
 * One chart per metric, main metrics first, with a curve of every job that reports it. With a spread, one of
 * all that differ in their seeds alone; not over an axis on which points have no order.
 */
export function panelsOf(jobs: readonly Compared[], axis: Axis, spread?: Spread): Panel[] {
  const mainMetrics = new Set(jobs.map(({ mainMetric }) => mainMetric));
  const custom = new Set(jobs.flatMap(({ all }) => all.names().filter((name) => !isKnown(name))));
  return [...ORDER, ...[...custom].sort()]
    .map((name) => ({
      name,
      title: labelOf(name),
      format: formatOf(name),
      binary: name.endsWith("_bytes"),
      curves: configsOf(jobs, name).flatMap((runs) =>
        spread === undefined || runs.some((run) => isScattered(run, axis))
          ? runs
          : withSpread(runs, spread),
      ),
    }))
    .filter(({ curves }) => curves.length > 0)
    .sort((a, b) => Number(mainMetrics.has(b.name)) - Number(mainMetrics.has(a.name)));
}

/** The curves of the jobs that report a metric, by their config. */
function configsOf(jobs: readonly Compared[], name: string): Curve[][] {
  const configs = new Map<string, Curve[]>();
  for (const job of jobs) {
    const curve = curveOf(job, name);
    if (!hasPoints({ ...curve, store: job.all })) continue;
    configs.set(job.config, [...(configs.get(job.config) ?? []), curve]);
  }
  return [...configs.values()];
}

function withSpread(runs: Curve[], spread: Spread): Curve[] {
  const [first] = runs;
  if (first === undefined || runs.length === 1) return runs;
  return [{ ...first, label: `${first.label}, ${runs.length} seeds`, runs, spread }];
}

function curveOf({ shown, label, slot, origin }: Compared, name: string): Curve {
  return {
    store: shown,
    name,
    label,
    origin,
    ...look(slot),
    ...(isValidation(name) ? { dots: true, exact: true } : {}),
  };
}
