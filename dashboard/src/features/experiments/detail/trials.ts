import type { Trial } from "@/shared/api/types";
import { count, metric } from "@/shared/format";

/** A configuration of an experiment: its runs differ in their seeds alone. */
export interface Configuration {
  number: number;
  values: Trial["values"];
  /** Mean over its runs; null until every run has a value. Until all have completed, that at the
   * last rung of early stopping that they share. */
  mean: number | null;
  /** Step of that rung; null of a mean of completed runs. */
  step: number | null;
  /** All its runs have completed: a value at a rung is not compared. */
  completed: boolean;
  /** The state of its runs: `completed` only if all have it. */
  state: string;
  /** When its last run ended, in seconds since the epoch; null before. */
  endedAt: number | null;
  /** The job of its first run that has one. */
  jobId: string | null;
  runs: readonly Trial[];
}

/** The configurations of the runs, in their order. */
export function configurationsOf(trials: readonly Trial[]): Configuration[] {
  const groups = new Map<number, Trial[]>();
  for (const trial of trials) {
    groups.set(trial.number, [...(groups.get(trial.number) ?? []), trial]);
  }
  return [...groups].map(([number, runs]) => {
    const ends = runs.map(({ finished_at: end }) => (end === null ? null : Date.parse(end) / 1000));
    const others = runs.find(({ state }) => state !== "completed");
    return {
      number,
      runs,
      values: runs[0]?.values ?? {},
      completed: others === undefined,
      state: (others ?? runs[0])?.state ?? "pending",
      ...objectiveOf(runs),
      endedAt: ends.includes(null) ? null : Math.max(...(ends as number[])),
      jobId: runs.find(({ job_id }) => job_id !== null)?.job_id ?? null,
    };
  });
}

function objectiveOf(runs: readonly Trial[]): Pick<Configuration, "mean" | "step"> {
  const mean = meanOf(runs.map(({ objective }) => objective));
  if (mean === null || runs.every(({ objective_step: step }) => step === null))
    return { mean, step: null };
  const last = Math.min(...runs.map(({ results }) => results.length)) - 1;
  return {
    mean: meanOf(runs.map(({ results }) => results[last]?.value)),
    step: runs[0]?.results[last]?.step ?? null,
  };
}

/** An objective, with the step of its rung if it is not that of a completed run. */
export function objectiveText(value: number | null | undefined, step: number | null): string {
  return step === null ? metric(value) : `${metric(value)} at step ${count(step)}`;
}

/** The mean over runs; null unless each has a finite value. */
export function meanOf(values: readonly (number | null | undefined)[]): number | null {
  const known = values.filter((value) => typeof value === "number" && Number.isFinite(value));
  if (known.length < values.length || known.length === 0) return null;
  return (known as number[]).reduce((sum, each) => sum + each, 0) / known.length;
}

/** The best value of each configuration and those before it; null before the first value. */
export function bestSoFar(values: readonly (number | null)[], goal: string): (number | null)[] {
  const better = goal === "max" ? Math.max : Math.min;
  let best: number | null = null;
  return values.map((value) => {
    if (value !== null) best = best === null ? value : better(best, value);
    return best;
  });
}

/** `number`, `state`, `value`, `rung`, `step` or a field of the space; `-` before it: in descending order. */
export type TrialSort = string;

export const BY_NUMBER: TrialSort = "number";

/** Runs in an order; those without a value are last either way. Objectives at a rung follow those
 * of completed runs, with which they are not compared. */
export function sortedTrials(trials: readonly Trial[], sort: TrialSort): Trial[] {
  const sign = sort.startsWith("-") ? -1 : 1;
  const key = sort.replace(/^-/, "");
  return trials.toSorted((a, b) => {
    const [left, right] = [sortValue(a, key), sortValue(b, key)];
    const later = key === "value" ? Number(isAtRung(a)) - Number(isAtRung(b)) : 0;
    if (left !== null && right !== null && later !== 0) return later;
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    return sign * compared(left, right);
  });
}

function isAtRung({ objective_step: step }: Trial): boolean {
  return step !== null;
}

function sortValue(trial: Trial, key: string): number | string | null {
  if (key === "number") return trial.number;
  if (key === "state") return trial.state;
  if (key === "value") return trial.objective;
  if (key === "rung" || key === "step") return trial[key];
  const value = trial.values[key];
  if (value === undefined || value === null) return null;
  return typeof value === "number" ? value : JSON.stringify(value);
}

function compared(left: number | string, right: number | string): number {
  if (typeof left === "number" && typeof right === "number") return left - right;
  return String(left).localeCompare(String(right), "en", { numeric: true });
}
