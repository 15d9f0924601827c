import type { GradientHistogram, GradientHistory, Remark } from "@/shared/api/types";
import { toNumber } from "@/shared/format";

export interface Row {
  name: string;
  /** At the newest step. */
  norm: number | null;
  largest: number | null;
  /** Norms by step, the oldest first; null for a step without one. */
  norms: (number | null)[];
  remark: Remark | null;
}

export const ORDERS = {
  model: "Model order",
  largest: "Largest first",
  smallest: "Smallest first",
};
export type Order = keyof typeof ORDERS;

export function rowsOf({ names, remarks, steps }: GradientHistory): Row[] {
  const newest = steps.at(-1);
  return names.map((name, i) => {
    const own = steps.map((step) => toNumber(step.norms[i]));
    return {
      name,
      norm: own.at(-1) ?? null,
      largest: toNumber(newest?.largest[i]),
      norms: own,
      remark: remarks[i] ?? null,
    };
  });
}

/** Sorts rows; a norm that is not finite counts as the largest. */
export function ordered(rows: Row[], order: Order): Row[] {
  if (order === "model") return rows;
  const size = ({ norm }: Row) => (norm === null || Number.isNaN(norm) ? Infinity : norm);
  const ascending = [...rows].sort((a, b) => size(a) - size(b) || 0);
  return order === "smallest" ? ascending : ascending.reverse();
}

/** Decimal logarithms of norms, for a sparkline: they differ by powers of ten. */
export function magnitudes(norms: (number | null)[]): (number | null)[] {
  return norms.map((norm) => (norm !== null && norm > 0 ? Math.log10(norm) : null));
}

interface Bar {
  /** The lower bound of its magnitudes. */
  from: number;
  count: number;
  /** Relative to the fullest bar, 0 to 1. */
  share: number;
}

export function barsOf({ first, counts }: GradientHistogram, lowestExponent: number): Bar[] {
  const most = Math.max(1, ...counts);
  return counts.map((count, i) => ({
    from: 2 ** (lowestExponent + first + i),
    count,
    share: count / most,
  }));
}
