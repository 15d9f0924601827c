import type { CurveStore } from "./store";

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
}

export function seriesOf(curve: Curve) {
  return curve.store.get(curve.name, curve.rank ?? null);
}

export function hasPoints(curve: Curve): boolean {
  return (seriesOf(curve)?.length ?? 0) > 0;
}

/** A key of the curve and its look. */
export function identityOf({ store, ...rest }: Curve): string {
  return JSON.stringify([store.id, rest]);
}
