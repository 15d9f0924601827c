import type { CurveStore } from "./store";

/** The band around the mean of runs: from least to greatest, or a standard deviation on either side. */
export type Spread = "range" | "deviation";

export type Values = readonly (number | null)[];

/** What a chart draws of a curve, in the order of the axis. */
export interface Points {
  at: readonly number[];
  values: Values;
  /** Extremes of what a point stands for. */
  mins: Values;
  maxs: Values;
}

/** One line of a chart: a series of a store, and how it looks. */
export interface Curve {
  store: CurveStore;
  name: string;
  rank?: number | null;
  label: string;
  /** CSS colour. */
  color: string;
  dash?: number[];
  /** The zero of relative time, in seconds since the epoch. */
  origin?: number;
  /** Draw every point as a dot. */
  dots?: boolean;
  /** Never smoothed: it has no noise. */
  exact?: boolean;
  /** Drawn thin, as one of many beside the main curve. */
  thin?: boolean;
  /** Runs whose mean is drawn, with a band of their spread, in place of the series. */
  runs?: readonly Curve[];
  spread?: Spread;
}

export function seriesOf(curve: Curve) {
  return curve.store.get(curve.name, curve.rank ?? null);
}

/** The curves that have series of their own: of a mean its runs. */
export function runsOf(curve: Curve): readonly Curve[] {
  return curve.runs ?? [curve];
}

export function hasPoints(curve: Curve): boolean {
  return runsOf(curve).some((run) => seriesOf(run)?.length);
}

/** A key of the curve and its look. */
export function identityOf({ store, runs, ...rest }: Curve): string {
  return JSON.stringify([store.id, rest, runs?.map(identityOf)]);
}
