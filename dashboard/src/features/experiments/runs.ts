import { type Experiment, hasReason } from "@/shared/api/types";
import { count, percent } from "@/shared/format";

/** States in the order in which they are listed; what a run ends with is last. */
const ORDER = [
  "running",
  "starting",
  "recovering",
  "pausing",
  "cancelling",
  "queued",
  "paused",
  "pending",
  "stopped",
  "failed",
  "cancelled",
];

interface Runs {
  total: number;
  completed: number;
  /** Share of the runs that have completed or were stopped early, in percent. */
  percent: number;
  /** Those that have not completed, by state: "2 running, 1 failed". */
  others: string;
}

/** Steps that the runs of an experiment with early stopping took; null without it. */
export function stepsText({ steps }: Pick<Experiment, "steps">): string | null {
  if (steps === null) return null;
  const { taken, in_full } = steps;
  return `${count(taken)} of ${count(in_full)} steps that all runs in full would take (${percent((100 * taken) / in_full)})`;
}

export function runsOf({ counts }: Pick<Experiment, "counts">): Runs {
  const of = (state: string) => counts[state] ?? 0;
  const total = Object.values(counts).reduce((sum, each) => sum + each, 0);
  return {
    total,
    completed: of("completed"),
    percent: total === 0 ? 0 : (100 * (of("completed") + of("stopped"))) / total,
    others: ORDER.filter((state) => of(state) > 0)
      .map((state) => `${of(state)} ${state}`)
      .join(", "),
  };
}

/** The reason without the number of completed runs and the best trial, which stand beside it. */
export function ownReason(experiment: Experiment): string {
  const { best, reason, reason_code } = experiment;
  if (reason_code !== "trials_ended") return hasReason(experiment) ? reason : "";
  return best === null ? reason.split("; ").slice(1).join("; ") : "";
}
