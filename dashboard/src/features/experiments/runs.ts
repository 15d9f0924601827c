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
  /** Runs in a final state. */
  ended: number;
  /** Those that have not completed, by state: "2 running, 1 failed". */
  others: string;
}

export function runsOf({ counts }: Pick<Experiment, "counts">): Runs {
  const of = (state: string) => counts[state] ?? 0;
  return {
    total: Object.values(counts).reduce((sum, each) => sum + each, 0),
    completed: of("completed"),
    ended: of("completed") + of("failed") + of("cancelled"),
    others: ORDER.filter((state) => of(state) > 0)
      .map((state) => `${of(state)} ${state}`)
      .join(", "),
  };
}
