import type { Points, Spread } from "./curve";

export function isSpread(value: unknown): value is Spread {
  return value === "range" || value === "deviation";
}

/** Most points of a mean: the times of runs have no position in common. */
const MOST = 1500;

/**
 * The mean of runs at all of their positions, over those with points before and after it; a gap where one
 * of them is not finite.
 */
export function meanOf(runs: readonly Points[], spread: Spread): Points {
  const at = gridOf(runs);
  const readers = runs.map(readerOf);
  const bands = at.map((position) =>
    bandOf(
      readers.map((read) => read(position)).filter((value) => value !== undefined),
      spread,
    ),
  );
  return {
    at,
    values: bands.map((band) => band?.mean ?? null),
    mins: bands.map((band) => band?.low ?? null),
    maxs: bands.map((band) => band?.high ?? null),
  };
}

/** Mean and sample standard deviation; null unless all values are finite. */
export function spreadOf(
  values: readonly (number | null)[],
): { mean: number; deviation: number } | null {
  if (!values.every((value) => value !== null && Number.isFinite(value))) return null;
  const known = values as readonly number[];
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const squares = known.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, deviation: Math.sqrt(squares / Math.max(1, known.length - 1)) };
}

function bandOf(values: readonly (number | null)[], spread: Spread) {
  const found = spreadOf(values);
  if (found === null) return null;
  const { mean, deviation } = found;
  if (spread === "deviation") return { mean, low: mean - deviation, high: mean + deviation };
  const known = values as readonly number[];
  return { mean, low: Math.min(...known), high: Math.max(...known) };
}

/** The positions of all runs, thinned. */
function gridOf(runs: readonly Points[]): number[] {
  const all = [...new Set(runs.flatMap(({ at }) => at))].sort((a, b) => a - b);
  const every = Math.ceil(all.length / MOST);
  return all.filter((_, i) => (all.length - 1 - i) % every === 0);
}

/** Reads a run at rising positions: its newest value there, undefined before its first and after its last. */
function readerOf({ at, values }: Points): (position: number) => number | null | undefined {
  let next = 0;
  return (position) => {
    while (next < at.length && (at[next] ?? 0) <= position) next += 1;
    const isPast = next === at.length && position > (at[next - 1] ?? position);
    return next === 0 || isPast ? undefined : (values[next - 1] ?? null);
  };
}
