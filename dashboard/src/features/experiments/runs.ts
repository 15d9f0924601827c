import type { Experiment } from "@/shared/api/types";

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
  "failed",
  "cancelled",
];

interface Runs {
  total: number;
  completed: number;
  /** Share of the runs that have completed, in percent. */
  percent: number;
  /** Those that have not completed, by state: "2 running, 1 failed". */
  others: string;
}

export function runsOf({ counts }: Pick<Experiment, "counts">): Runs {
  const of = (state: string) => counts[state] ?? 0;
  const total = Object.values(counts).reduce((sum, each) => sum + each, 0);
  return {
    total,
    completed: of("completed"),
    percent: total === 0 ? 0 : (100 * of("completed")) / total,
    others: ORDER.filter((state) => of(state) > 0)
      .map((state) => `${of(state)} ${state}`)
      .join(", "),
  };
}
