import { type Axis, isAxis, type Range } from "./axis";

/** How curves are looked at; all of it stands in the address, so that a view can be shared. */
export interface CurveView {
  /** What is on the horizontal axis; left out: steps. */
  x?: Axis | undefined;
  /** 0 to 0.999; how much of the past a smoothed value holds. */
  smooth?: number | undefined;
  /** Logarithmic values. */
  log?: boolean | undefined;
  /** The shown part of the axis, in its units. */
  from?: number | undefined;
  to?: number | undefined;
  /** Draw the series of single ranks as well. */
  ranks?: boolean | undefined;
}

export const MOST_SMOOTHING = 0.999;

/** What of an address is about curves; what makes no sense is left out. */
export function curveView(raw: Record<string, unknown>): CurveView {
  const { from, to, smooth } = raw;
  const zoomed = isNumber(from) && isNumber(to) && from < to;
  return {
    ...(isAxis(raw.x) && raw.x !== "step" ? { x: raw.x } : {}),
    ...(isNumber(smooth) && smooth > 0 && smooth <= MOST_SMOOTHING ? { smooth } : {}),
    ...(raw.log === true ? { log: true } : {}),
    ...(zoomed ? { from, to } : {}),
    ...(raw.ranks === true ? { ranks: true } : {}),
  };
}

export function rangeOf({ from, to }: CurveView): Range | null {
  return from === undefined || to === undefined ? null : { from, to };
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}
