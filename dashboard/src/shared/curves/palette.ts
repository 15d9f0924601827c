/**
 * Colours that people who see red and green alike can tell apart (after Okabe and Ito), with a contrast
 * of 3 to 1 on the page; `app.css` holds a set for each colour scheme.
 */
export const PALETTE = Array.from({ length: 8 }, (_, i) => `var(--curve-${i})`);

export interface Look {
  /** CSS colour. */
  color: string;
  /** Lengths of dash and gap; none: a solid line. */
  dash?: number[];
}

const DASHES = [undefined, [8, 4], [2, 3]];

/** The look of the curve at a place of a list: it stays, whatever comes before or behind it. */
export function look(place: number): Look {
  const color = PALETTE[place % PALETTE.length] ?? "gray";
  const dash = DASHES[Math.floor(place / PALETTE.length) % DASHES.length];
  return dash === undefined ? { color } : { color, dash };
}
