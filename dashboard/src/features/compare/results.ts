import type { Job } from "@/shared/api/types";
import { toNumber, valueAt } from "@/shared/format";
import { impliedGoal } from "@/shared/live/metric-names";

type Compared = Pick<Job, "metrics" | "main_metric">;

export interface Result {
  name: string;
  /** The latest value of each job; null where it reports none. */
  values: (number | null)[];
  /** The best of them; null where the name does not tell what is better. */
  best: number | null;
}

/** The latest values of every metric, the jobs' main metrics first. */
export function resultsOf(jobs: readonly Compared[]): Result[] {
  const goals = new Map(
    jobs.flatMap(({ main_metric: main }) => (main ? [[main.name, main.goal] as const] : [])),
  );
  const names = new Set(jobs.flatMap(({ metrics }) => Object.keys(metrics)));
  return [...names]
    .sort((a, b) => Number(goals.has(b)) - Number(goals.has(a)) || a.localeCompare(b, "en"))
    .map((name) => {
      const values = jobs.map(({ metrics }) => toNumber(valueAt(metrics, name)));
      const known = values.filter((value) => value !== null && Number.isFinite(value));
      const goal = goals.get(name) ?? impliedGoal(name);
      const better = goal === "max" ? Math.max : goal === "min" ? Math.min : null;
      const best = better && known.length > 1 ? better(...(known as number[])) : null;
      return { name, values, best };
    });
}
