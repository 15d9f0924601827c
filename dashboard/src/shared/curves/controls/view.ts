import { type Axis, isAxis, type Range } from "@/shared/curves/data/axis";

/** The view of curves. All of it is in the URL, so that a view can be shared. */
export interface CurveView {
  /** Horizontal axis; left out: steps. */
  x?: Axis | undefined;
  /** Weight of the past in a smoothed value, 0 to 0.999. */
  smooth?: number | undefined;
  /** Logarithmic vertical axis. */
  log?: boolean | undefined;
  /** Vertical axes leave out the most extreme values. */
  trim?: boolean | undefined;
  /** The visible range of the axis, in its units. */
  from?: number | undefined;
  to?: number | undefined;
  /** Draw the series of single ranks as well. */
  ranks?: boolean | undefined;
  /** Only the charts that match this regular expression. */
  charts?: string | undefined;
}

export const MAX_SMOOTHING = 0.999;

/** The view in a URL, without invalid values. */
export function curveView(raw: Record<string, unknown>): CurveView {
  const { from, to, smooth } = raw;
  const zoomed = isNumber(from) && isNumber(to) && from < to;
  return {
    ...(isAxis(raw.x) && raw.x !== "step" ? { x: raw.x } : {}),
    ...(isNumber(smooth) && smooth > 0 && smooth <= MAX_SMOOTHING ? { smooth } : {}),
    ...(raw.log === true ? { log: true } : {}),
    ...(raw.trim === true ? { trim: true } : {}),
    ...(zoomed ? { from, to } : {}),
    ...(raw.ranks === true ? { ranks: true } : {}),
    ...(raw.charts ? { charts: String(raw.charts).slice(0, 256) } : {}),
  };
}

export function rangeOf({ from, to }: CurveView): Range | null {
  return from === undefined || to === undefined ? null : { from, to };
}

function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}
