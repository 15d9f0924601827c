import type { AlignedData } from "uplot";
import uPlot from "uplot";
import type { Points } from "@/shared/curves/data/curve";

/** Columns of each curve in the chart's data, after the shared x column. */
export const COLUMNS_PER_CURVE = 4;

/** Of x, minima, maxima, values and smoothed values, the index of the values modulo four. */
const VALUE_COLUMN = 3;

type Column = readonly (number | null | undefined)[];

/** Exponential moving average with bias correction (Kingma & Ba, arXiv:1412.6980, section 3). */
export function smoothed(values: readonly (number | null)[], factor: number): (number | null)[] {
  if (factor <= 0) return values.map(() => null);
  let average = 0;
  let weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    average = factor * average + (1 - factor) * value;
    weight = factor * weight + (1 - factor);
    return average / weight;
  });
}

export interface Drawn {
  points: Points;
  /** Weight of the past in a smoothed value, 0 to 1. */
  smoothing: number;
}

/**
 * The chart's data: x, then for each curve its minima, maxima, values and smoothed values.
 *
 * Curves need not share their steps. A value that is missing because another curve has a point there
 * is skipped; one that is not finite breaks the line.
 */
export function chartData(curves: readonly Drawn[]): AlignedData {
  return joined(
    curves.map(({ points: { at, mins, maxs, values }, smoothing }): Column[] => [
      at,
      mins,
      maxs,
      values,
      smoothed(values, smoothing),
    ]),
  );
}

/**
 * The data of a stacked area in the same columns: values are sums with the curves before, and there
 * are no minima, maxima or smoothed values. What is missing counts as 0.
 */
export function stackedData(curves: readonly Drawn[]): AlignedData {
  const tables = curves.map(({ points: { at, values }, smoothing }): Column[] => [
    at,
    smoothing > 0 ? smoothed(values, smoothing) : values,
  ]);
  const [x = [], ...columns] = joined(tables) as unknown as Column[];
  const none = x.map(() => null);
  let below: number[] = x.map(() => 0);
  const stacked = columns.flatMap((column) => {
    const sums = below.map((sum, i) => sum + (column[i] ?? 0));
    below = sums;
    return [none, none, sums, none];
  });
  return [x, ...stacked] as unknown as AlignedData;
}

/** Tables joined over one x column. Those of one job mostly share it, and joining is expensive. */
function joined(tables: Column[][]): AlignedData {
  const filled = tables.filter((table) => (table[0]?.length ?? 0) > 0);
  const first = filled[0]?.[0];
  if (first === undefined) {
    return [[], ...tables.flatMap((table) => table.slice(1))] as unknown as AlignedData;
  }
  if (filled.every((table) => same(first, table[0] ?? []))) {
    const missing = first.map(() => undefined);
    const columns = tables.flatMap((table) =>
      table.slice(1).map((column) => (table[0]?.length ? column : missing)),
    );
    return [first, ...columns] as unknown as AlignedData;
  }
  return uPlot.join(tables as unknown as AlignedData[]);
}

function same(a: Column, b: Column): boolean {
  return a === b || (a.length === b.length && a.every((value, i) => value === b[i]));
}

/** Share of the values that an axis without outliers leaves out at either end. */
const TRIMMED = 0.02;
/** Of fewer values none is an outlier. */
const LEAST = 20;

/** The extremes of the curves' values without outliers; null if there are too few. */
export function trimmedExtremes(data: AlignedData): [low: number, high: number] | null {
  const values = data
    .filter((_, i) => i % COLUMNS_PER_CURVE === VALUE_COLUMN)
    .flatMap((column) => Array.from(column))
    .filter((value) => typeof value === "number")
    .sort((a, b) => a - b);
  if (values.length < LEAST) return null;
  const cut = Math.floor(values.length * TRIMMED);
  return [values[cut] ?? 0, values[values.length - 1 - cut] ?? 1];
}
