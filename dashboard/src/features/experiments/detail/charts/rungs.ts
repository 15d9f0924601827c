import { type Configuration, meanOf } from "../trials";
import { type Fate, fateOf } from "./fates";

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
      const fate = rung < reached - 1 ? "promoted" : fateAtLast(state);
      return value === null ? [] : [{ number, step, value, fate }];
    });
  });
}

/** At its last rung a trial waits for a promotion, unless it has ended, or left for the next one. */
function fateAtLast(state: string): Fate {
  const fate = fateOf(state);
  return fate === "running" ? "promoted" : fate;
}
