import { powersOfTen, spaced } from "@/shared/curves/chart/ticks";
import { metric } from "@/shared/format";
import type { Configuration } from "../trials";
import { positionOn, type TrialAxis } from "./axes";
import { type Fate, fateOf } from "./fates";

/** An axis with the range of its positions. */
export interface ScaledAxis {
  axis: TrialAxis;
  low: number;
  high: number;
}

/** A trial on every axis, each from 0 (low) to 1; null where it has no value. */
export interface ParallelLine {
  number: number;
  fate: Fate;
  at: readonly (number | null)[];
}

export function scaled(
  axes: readonly TrialAxis[],
  configurations: readonly Configuration[],
): ScaledAxis[] {
  return axes.map((axis) => {
    const { scale } = axis;
    if (scale.kind === "category") return { axis, low: 0, high: scale.names.length - 1 };
    const found = configurations.map((each) => positionOn(axis, each));
    const known = found.filter((at) => at !== null);
    if (known.length === 0) return { axis, low: 0, high: 1 };
    return { axis, low: Math.min(...known), high: Math.max(...known) };
  });
}

export function linesOf(
  axes: readonly ScaledAxis[],
  configurations: readonly Configuration[],
): ParallelLine[] {
  return configurations.map((configuration) => ({
    number: configuration.number,
    fate: fateOf(configuration.state),
    at: axes.map((axis) => {
      const at = positionOn(axis.axis, configuration);
      return at === null ? null : shareOf(axis, at);
    }),
  }));
}

/** Where a position is on its axis, from 0 (low) to 1; the middle where all are the same. */
export function shareOf({ axis, low, high }: ScaledAxis, at: number): number {
  if (low === high) return 0.5;
  if (axis.scale.kind !== "log") return (at - low) / (high - low);
  return Math.log(at / low) / Math.log(high / low);
}

/** The position at a share of an axis, the inverse of `shareOf`. */
export function positionAt({ axis, low, high }: ScaledAxis, share: number): number {
  if (axis.scale.kind === "log") return low * (high / low) ** share;
  return low + share * (high - low);
}

/** The labels of an axis of so many pixels. */
export function ticksOf(scaledAxis: ScaledAxis, length: number): { at: number; text: string }[] {
  const { axis, low, high } = scaledAxis;
  const { scale } = axis;
  if (scale.kind === "category") return scale.names.map((text, at) => ({ at, text }));
  const onScale = { low, high, log: scale.kind === "log", length };
  const values =
    "tried" in scale && scale.tried && low < high
      ? spaced(scale.tried, onScale)
      : scale.kind === "log"
        ? powersOfTen(low, high, onScale)
        : [...new Set([low, middleOf(low, high), high])];
  return values.map((at) => ({ at, text: metric(at) }));
}

/** Between whole numbers, such as counts, one, too. */
function middleOf(low: number, high: number): number {
  const middle = (low + high) / 2;
  return Number.isInteger(low) && Number.isInteger(high) ? Math.round(middle) : middle;
}

/** The path of lines in SVG; a gap in a line breaks it. */
export function pathOf(
  lines: readonly ParallelLine[],
  x: (axis: number) => number,
  y: (share: number) => number,
): string {
  return lines
    .map(({ at }) => {
      let pen = "M";
      return at
        .map((share, axis) => {
          if (share === null) {
            pen = "M";
            return "";
          }
          const point = `${pen}${x(axis).toFixed(1)} ${y(share).toFixed(1)}`;
          pen = "L";
          return point;
        })
        .join("");
    })
    .join("");
}

/** The number of the line nearest to a point, within `reach`; all in pixels. */
export function lineAt(
  lines: readonly ParallelLine[],
  xs: readonly number[],
  y: (share: number) => number,
  point: { x: number; y: number },
  reach: number,
): number | null {
  const next = xs.findIndex((x) => x >= point.x);
  if (next < 1) return null;
  const [left, right] = [xs[next - 1] ?? 0, xs[next] ?? 0];
  const along = (point.x - left) / (right - left);
  let found: number | null = null;
  let least = reach;
  for (const { number, at } of lines) {
    const [from, to] = [at[next - 1] ?? null, at[next] ?? null];
    if (from === null || to === null) continue;
    const distance = Math.abs(y(from) + along * (y(to) - y(from)) - point.y);
    if (distance < least) [found, least] = [number, distance];
  }
  return found;
}

/**
 * Groups of lines by the rank of their objective, which is the last axis: 0 is the best; null: no
 * value. By rank, since most values of a sweep are close to the best.
 */
export function groupsByRank(
  lines: readonly ParallelLine[],
  goal: string,
  groups: number,
): (line: ParallelLine) => number | null {
  const worse = (at: number) => (goal === "max" ? -at : at);
  const ranked = lines
    .flatMap(({ at }) => at.at(-1) ?? [])
    .map(worse)
    .sort((one, other) => one - other);
  const rankOf = new Map<number, number>();
  ranked.forEach((value, rank) => {
    if (!rankOf.has(value)) rankOf.set(value, rank);
  });
  return ({ at }) => {
    const share = at.at(-1) ?? null;
    if (share === null) return null;
    const rank = rankOf.get(worse(share)) ?? 0;
    return Math.round((rank / Math.max(1, ranked.length - 1)) * (groups - 1));
  };
}
