/** Positions on an axis: its range, whether it is logarithmic, and its length in pixels. */
interface Scale {
  low: number;
  high: number;
  log: boolean;
  length: number;
}

/** Pixels between two labels. */
const SPACE = 48;

/** Those of the values that have room for their labels; the last one always has. */
export function spaced(values: readonly number[], scale: Scale): number[] {
  const at = positionOn(scale);
  const kept: number[] = [];
  for (const value of values.toSorted((a, b) => a - b).toReversed()) {
    const next = kept.at(-1);
    if (next === undefined || at(next) - at(value) >= SPACE) kept.push(value);
  }
  return kept.reverse();
}

/** The ends of the values, and the powers of ten between them that have room. */
export function powersOfTen(least: number, most: number, scale: Scale): number[] {
  const at = positionOn(scale);
  const first = Math.ceil(Math.log10(least));
  const count = Math.max(0, Math.floor(Math.log10(most)) - first + 1);
  const powers = Array.from({ length: count }, (_, i) => Number(`1e${first + i}`)).filter(
    (power) => at(power) - at(least) >= SPACE && at(most) - at(power) >= SPACE,
  );
  return least === most ? [least] : [least, ...spaced(powers, scale), most];
}

function positionOn({ low, high, log, length }: Scale): (value: number) => number {
  const scaled = log ? Math.log10 : (value: number) => value;
  return (value) => ((scaled(value) - scaled(low)) / (scaled(high) - scaled(low))) * length;
}
