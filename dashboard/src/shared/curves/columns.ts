import type { AlignedData } from "uplot";
import uPlot from "uplot";
import type { CurveSeries } from "./series";

export type Axis = "step" | "time";

/** Columns that each curve has in the chart's data, behind the shared x column. */
export const COLUMNS_PER_CURVE = 4;

/** Exponential moving average with its start corrected (Kingma & Ba, arXiv:1412.6980, section 3). */
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
  series: CurveSeries | undefined;
  /** 0 to 1; how much of the past a smoothed value holds. */
  smoothing: number;
}

/**
 * The chart's data: x, then for each curve its minima, maxima, values and smoothed values.
 *
 * Curves need not share their steps. A value that is missing because another curve has a point there
 * is skipped; one that is not finite breaks the line.
 */
export function chartData(curves: readonly Drawn[], axis: Axis): AlignedData {
  const tables = curves.map(({ series: curve, smoothing }): AlignedData => {
    if (curve === undefined || curve.length === 0) return [[], [], [], [], []];
    const x = axis === "step" ? curve.steps : increasing(curve.times);
    return [x, curve.mins, curve.maxs, curve.values, smoothed(curve.values, smoothing)];
  });
  const filled = tables.filter((table) => table[0].length > 0);
  if (filled.length === 0) {
    return [[], ...curves.flatMap(() => [[], [], [], []])] as unknown as AlignedData;
  }
  if (tables.length === 1) return tables[0] as AlignedData;
  return uPlot.join(tables);
}

/** Clocks may be set back; a chart needs its x values in order. */
function increasing(times: readonly number[]): number[] {
  let latest = -Infinity;
  return times.map((time) => {
    latest = time > latest ? time : latest + 1e-6;
    return latest;
  });
}
