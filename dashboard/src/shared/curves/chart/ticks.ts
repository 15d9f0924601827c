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

/** Distances between the ticks of an axis of steps. */
export const STEP_TICKS = [1, 2, 5]
  .flatMap((n) => Array.from({ length: 13 }, (_, i) => n * 10 ** i))
  .sort((a, b) => a - b);
/** The same for seconds. */
export const SECOND_TICKS = [1, 2, 5, 10, 15, 30]
  .flatMap((n) => [n, n * 60])
  .concat([1, 2, 3, 6, 12, 24, 48, 120, 240].map((hours) => hours * 3600))
  .sort((a, b) => a - b);
