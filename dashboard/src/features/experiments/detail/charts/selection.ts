import type { Configuration } from "../trials";
import { positionOn, type TrialAxis } from "./axes";

/** Ranges of axes by their ids, in the units of the axis; of names, their indexes. */
export type Brush = Readonly<Record<string, readonly [low: number, high: number]>>;

/** The trials of an experiment that the reader chose: all within the ranges, or single ones. */
export interface TrialSearch {
  brush?: Brush | undefined;
  /** Numbers of trials, separated by commas. */
  selected?: string | undefined;
}

const MAX_BRUSHED = 32;

/** The selection in a URL, without invalid values. */
export function trialSearch(raw: Record<string, unknown>): TrialSearch {
  const brush = Object.entries(typeof raw.brush === "object" && raw.brush ? raw.brush : {})
    .filter((entry): entry is [string, [number, number]] => isRange(entry[1]))
    .slice(0, MAX_BRUSHED);
  if (brush.length > 0) return { brush: Object.fromEntries(brush) };
  return raw.selected ? { selected: String(raw.selected).slice(0, 8192) } : {};
}

function isRange(value: unknown): value is [number, number] {
  if (!Array.isArray(value) || value.length !== 2) return false;
  return value.every((each) => Number.isFinite(each)) && value[0] <= value[1];
}

/** The numbers of the chosen trials; null where none are chosen. */
export function selectedOf(
  { brush, selected }: TrialSearch,
  configurations: readonly Configuration[],
  axes: readonly TrialAxis[],
): ReadonlySet<number> | null {
  if (brush === undefined) return selected === undefined ? null : new Set(numbersOf(selected));
  const brushed = axes.flatMap((axis) => {
    const range = brush[axis.id];
    return range === undefined ? [] : [{ axis, range }];
  });
  const isWithin = (configuration: Configuration) =>
    brushed.every(({ axis, range: [low, high] }) => {
      const at = positionOn(axis, configuration);
      return at !== null && at >= low && at <= high;
    });
  return new Set(configurations.filter(isWithin).map(({ number }) => number));
}

/** Adds a trial to those that were chosen one by one, or removes it. */
export function toggled({ selected }: TrialSearch, number: number): TrialSearch {
  const numbers = numbersOf(selected ?? "");
  const left = numbers.filter((each) => each !== number);
  const next = left.length < numbers.length ? left : [...left, number].sort((a, b) => a - b);
  return next.length === 0 ? {} : { selected: next.join() };
}

/** Sets the ranges of axes, or removes them (null). */
export function brushed(
  { brush = {} }: TrialSearch,
  ranges: Readonly<Record<string, readonly [number, number] | null>>,
): TrialSearch {
  const all = Object.entries({ ...brush, ...ranges }).filter(([, range]) => range !== null);
  return all.length === 0 ? {} : { brush: Object.fromEntries(all) as Brush };
}

function numbersOf(text: string): number[] {
  return text
    .split(",")
    .map(Number)
    .filter((number) => Number.isInteger(number) && number > 0);
}
