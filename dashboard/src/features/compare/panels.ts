import { type Curve, hasPoints } from "@/shared/curves/curve";
import { look } from "@/shared/curves/palette";
import type { CurveStore } from "@/shared/curves/store";
import { duration, metric, si } from "@/shared/format";
import { isKnown } from "@/shared/live/metric-names";

/** A job on the plots: where its points are, and the place that gives it its look. */
export interface Compared {
  label: string;
  place: number;
  /** All of its points, and those that are drawn now. */
  all: CurveStore;
  shown: CurveStore;
  /** Where its elapsed time is 0, in seconds since the epoch. */
  origin: number;
}

export interface Panel {
  title: string;
  name: string;
  curves: Curve[];
  format: (value: number | null) => string;
}

const ORDER: [name: string, title: string, format?: Panel["format"]][] = [
  ["loss", "Loss"],
  ["eval_loss", "Held-out loss"],
  ["accuracy", "Accuracy"],
  ["eval_accuracy", "Held-out accuracy"],
  ["samples_per_second", "Samples per second", si],
  ["step_seconds", "Step time", duration],
  ["learning_rate", "Learning rate"],
  ["gradient_norm", "Gradient norm"],
];

/** One chart a metric, with a curve of every job that reports it. */
export function panelsOf(jobs: readonly Compared[]): Panel[] {
  const custom = new Set(jobs.flatMap(({ all }) => all.names().filter((name) => !isKnown(name))));
  const names = [...ORDER, ...[...custom].sort().map((name): [string, string] => [name, name])];
  return names
    .map(([name, title, format]) => ({
      name,
      title,
      format: format ?? metric,
      curves: jobs
        .map((job) => ({ job, curve: curveOf(job, name) }))
        .filter(({ job, curve }) => hasPoints({ ...curve, store: job.all }))
        .map(({ curve }) => curve),
    }))
    .filter(({ curves }) => curves.length > 0);
}

function curveOf({ shown, label, place, origin }: Compared, name: string): Curve {
  const evaluated = name.startsWith("eval_");
  return {
    store: shown,
    name,
    label,
    origin,
    ...look(place),
    ...(evaluated ? { dots: true, exact: true } : {}),
  };
}
