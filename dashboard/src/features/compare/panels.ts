import { look } from "@/shared/curves/chart/palette";
import { type Curve, hasPoints } from "@/shared/curves/data/curve";
import type { CurveStore } from "@/shared/curves/data/store";
import { formatOf, isKnown, isValidation, labelOf } from "@/shared/live/metric-names";

/** A compared job: its points, and the slot that decides its colour. */
export interface Compared {
  label: string;
  slot: number;
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

/** One chart per metric, main metrics first, with a curve of every job that reports it. */
export function panelsOf(jobs: readonly Compared[]): Panel[] {
  const mainMetrics = new Set(jobs.map(({ mainMetric }) => mainMetric));
  const custom = new Set(jobs.flatMap(({ all }) => all.names().filter((name) => !isKnown(name))));
  return [...ORDER, ...[...custom].sort()]
    .map((name) => ({
      name,
      title: labelOf(name),
      format: formatOf(name),
      binary: name.endsWith("_bytes"),
      curves: jobs
        .map((job) => ({ job, curve: curveOf(job, name) }))
        .filter(({ job, curve }) => hasPoints({ ...curve, store: job.all }))
        .map(({ curve }) => curve),
    }))
    .filter(({ curves }) => curves.length > 0)
    .sort((a, b) => Number(mainMetrics.has(b.name)) - Number(mainMetrics.has(a.name)));
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
