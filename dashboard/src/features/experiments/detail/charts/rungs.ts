import { type Configuration, meanOf } from "../trials";

/** What became of a trial at a rung of early stopping. */
export type Fate = "promoted" | "paused" | "stopped" | "completed" | "failed";

/** The order in which they are listed. */
export const FATES: readonly Fate[] = ["promoted", "completed", "paused", "stopped", "failed"];

export interface RungResult {
  number: number;
  step: number;
  /** Objective there, the mean over the repeats. */
  value: number;
  fate: Fate;
}

/** The results of every trial at every rung, without those that have no finite value. */
export function rungResults(configurations: readonly Configuration[]): RungResult[] {
  return configurations.flatMap(({ number, runs, state }) => {
    const reached = Math.min(...runs.map(({ results }) => results.length));
    return (runs[0]?.results ?? []).slice(0, reached).flatMap(({ step }, rung) => {
      const value = meanOf(runs.map(({ results }) => results[rung]?.value));
      const fate = rung < reached - 1 ? "promoted" : fateOf(state);
      return value === null ? [] : [{ number, step, value, fate }];
    });
  });
}

/** At its last rung a trial waits for a promotion, unless it has ended or left. */
function fateOf(state: string): Fate {
  if (state === "paused" || state === "pausing") return "paused";
  if (state === "completed" || state === "failed") return state;
  if (state === "stopped" || state === "cancelled" || state === "cancelling") return "stopped";
  // It runs towards the next rung: it was promoted.
  return "promoted";
}
