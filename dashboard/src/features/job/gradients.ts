import type { GradientHistogram, GradientHistory } from "@/shared/api/types";
import { toNumber } from "@/shared/format";

/** What is remarkable about a parameter's newest gradient. */
export type Remark = "not finite" | "dead" | "vanishing" | "exploding";

export interface Row {
  name: string;
  /** At the newest step. */
  norm: number | null;
  largest: number | null;
  /** Norms of the steps that told of it, the oldest first; null for one that did not. */
  norms: (number | null)[];
  remark: Remark | null;
}

export const ORDERS = {
  model: "As in the model",
  largest: "Largest first",
  smallest: "Smallest first",
};
export type Order = keyof typeof ORDERS;

/** So many times its median norm so far, and a gradient explodes. */
const EXPLODING = 10;
/** Steps before the newest that it takes to say so. */
const KNOWN_STEPS = 3;
/** So small a share of the largest norm of the step, and a gradient vanishes. */
const VANISHING = 1e-6;

export function rowsOf({ names, steps }: GradientHistory): Row[] {
  const newest = steps.at(-1);
  const norms = names.map((_, i) => steps.map((step) => toNumber(step.norms[i])));
  const top = Math.max(0, ...norms.map((of) => of.at(-1) ?? 0).filter(Number.isFinite));
  return names.map((name, i) => {
    const own = norms[i] ?? [];
    return {
      name,
      norm: own.at(-1) ?? null,
      largest: toNumber(newest?.largest[i]),
      norms: own,
      remark: remarkOn(own, top),
    };
  });
}

function remarkOn(norms: (number | null)[], top: number): Remark | null {
  const norm = norms.at(-1) ?? null;
  if (norm === null) return null;
  if (!Number.isFinite(norm)) return "not finite";
  if (norm === 0) return "dead";
  if (norm < VANISHING * top) return "vanishing";
  const before = norms.slice(0, -1).filter((each): each is number => each !== null);
  if (before.length < KNOWN_STEPS) return null;
  return norm > EXPLODING * median(before) ? "exploding" : null;
}

function median(values: number[]): number {
  return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

/** Rows in another order; what is not finite counts as the largest. */
export function ordered(rows: Row[], order: Order): Row[] {
  if (order === "model") return rows;
  const size = ({ norm }: Row) => (norm === null || Number.isNaN(norm) ? Infinity : norm);
  const rising = [...rows].sort((a, b) => size(a) - size(b) || 0);
  return order === "smallest" ? rising : rising.reverse();
}

/** Norms for a small curve: their magnitudes, since they differ by powers of ten. */
export function magnitudes(norms: (number | null)[]): (number | null)[] {
  return norms.map((norm) => (norm !== null && norm > 0 ? Math.log10(norm) : null));
}

export interface Bar {
  /** The smallest magnitude that it counts. */
  from: number;
  count: number;
  /** Of the fullest bar. */
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
