import type { CurveStore } from "@/shared/curves/data/store";

/** A metric of every rank over ranges of steps. */
export interface RankHeat {
  rows: RankRow[];
  /** The first and the last step. */
  first: number;
  last: number;
  /** The values at which colours begin and end, without outliers. */
  low: number;
  high: number;
}

interface RankRow {
  rank: number;
  /** The mean of each range; null without points. */
  cells: (number | null)[];
  mean: number | null;
}

/** Ranges of steps at most: more would be narrower than a few pixels. */
const COLUMNS = 60;
/** Share of the cells at either end that have the colour of the end. */
const OUTLIERS = 0.02;

/** The metrics that more than one rank reports. */
export function rankMetrics(curves: CurveStore): string[] {
  return curves.names().filter((name) => curves.ranks(name).length > 1);
}

/** Null without points. */
export function rankHeat(curves: CurveStore, name: string): RankHeat | null {
  const series = curves
    .ranks(name)
    .flatMap((rank) => ({ rank, of: curves.get(name, rank) }))
    .flatMap(({ rank, of }) => (of?.length ? [{ rank, steps: of.steps, values: of.values }] : []));
  if (series.length === 0) return null;
  const first = Math.min(...series.map(({ steps }) => steps[0] ?? Infinity));
  const last = Math.max(...series.map(({ steps }) => steps.at(-1) ?? 0));
  const columns = Math.min(COLUMNS, last - first + 1);
  const columnOf = (step: number) => Math.floor(((step - first) / (last - first + 1)) * columns);
  const rows = series.map(({ rank, steps, values }) => {
    const groups = Array.from({ length: columns }, (): number[] => []);
    values.forEach((value, i) => {
      if (value !== null) groups[columnOf(steps[i] ?? first)]?.push(value);
    });
    return { rank, cells: groups.map(meanOf), mean: meanOf(groups.flat()) };
  });
  const sorted = rows
    .flatMap(({ cells }) => cells)
    .filter((cell) => cell !== null)
    .sort((a, b) => a - b);
  const cut = Math.floor(sorted.length * OUTLIERS);
  const [low = 0, high = 0] = [sorted[cut], sorted[sorted.length - 1 - cut]];
  return { rows, first, last, low, high };
}

function meanOf(values: readonly number[]): number | null {
  if (values.length === 0) return null;
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The cells as a CSS background. */
export function background(cells: readonly (number | null)[], low: number, high: number): string {
  const stops = cells.map((cell, i) => {
    const [from, to] = [i, i + 1].map((at) => `${((100 * at) / cells.length).toFixed(2)}%`);
    return `${colorOf(cell, low, high)} ${from} ${to}`;
  });
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

function colorOf(cell: number | null, low: number, high: number): string {
  if (cell === null) return "transparent";
  const share = high > low ? Math.min(1, Math.max(0, (cell - low) / (high - low))) : 0;
  return `color-mix(in oklab, var(--heat-high) ${Math.round(100 * share)}%, var(--heat-low))`;
}
