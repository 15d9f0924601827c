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
  /** Where the elapsed time is 0, in seconds since the epoch. */
  origin?: number;
  /** Few points: draw each. */
  dots?: boolean;
  /** Has no noise that smoothing could take away. */
  exact?: boolean;
  /** One of many, beside the one that matters. */
  thin?: boolean;
}

export function seriesOf(curve: Curve) {
  return curve.store.get(curve.name, curve.rank ?? null);
}

export function hasPoints(curve: Curve): boolean {
  return (seriesOf(curve)?.length ?? 0) > 0;
}

/** What makes a curve itself and how it is drawn, as text. */
export function identityOf({ store, ...rest }: Curve): string {
  return JSON.stringify([store.id, rest]);
}
