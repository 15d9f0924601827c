import type { Shape } from "./shapes";

/**
 * Colours that are distinct for colour-blind readers (after Okabe and Ito), with a contrast of 3 to 1 to
 * the page; `app.css` has a set for each colour scheme.
 */
export const PALETTE = Array.from({ length: 8 }, (_, i) => `var(--curve-${i})`);

export interface Look {
  /** CSS colour. */
  color: string;
  /** Lengths of dash and gap; left out: a solid line. */
  dash?: number[];
  /** Of single points; left out: of a curve. */
  shape?: Shape;
}

const DASHES = [undefined, [8, 4], [2, 3]];

/** The look of the curve at an index of a list. */
export function look(index: number): Look {
  const color = PALETTE[index % PALETTE.length] ?? "gray";
  const dash = DASHES[Math.floor(index / PALETTE.length) % DASHES.length];
  return dash === undefined ? { color } : { color, dash };
}

/** A canvas can't read CSS variables. */
export function resolved(color: string): string {
  const name = /^var\((--[\w-]+)\)$/.exec(color)?.[1];
  if (name === undefined) return color;
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "gray";
}
