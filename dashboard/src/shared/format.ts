/** Numbers and times as text, by the rules of Python's training/common/units.py. */

/** In place of what was not measured, or does not exist. */
export const NOTHING = "—";

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  let amount = value;
  let unit = 0;
  while (Math.abs(amount) >= 1024 && unit < BYTE_UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || Math.abs(amount) >= 100 ? 0 : 1;
  return `${amount.toFixed(digits)} ${BYTE_UNITS[unit]}`;
}

/** Bytes on an axis: all in the unit of the largest, with the digits that tell neighbours apart. */
export function byteTicks(ticks: readonly number[]): string[] {
  const most = Math.max(1, ...ticks.map(Math.abs));
  const unit = Math.min(BYTE_UNITS.length - 1, Math.floor(Math.log2(most) / 10));
  return ticks.map((tick) => `${significant(tick / 1024 ** unit, 6)} ${BYTE_UNITS[unit]}`);
}

const SI: [number, string][] = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** 12,345,678 → "12.3 M"; small numbers stay whole. */
export function si(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NOTHING;
  for (const [size, letter] of SI) {
    if (Math.abs(value) >= size) return `${significant(value / size, 3)} ${letter}`;
  }
  return significant(value, 3);
}

// Making it takes longer than drawing a row of a table.
const COUNT = new Intl.NumberFormat("en-US");

export function count(value: number | null | undefined): string {
  if (value === null || value === undefined) return NOTHING;
  return COUNT.format(value);
}

/** Hours, kilowatt-hours or money, all with two decimals, so that columns can be compared. */
export function hours(value: number | null | undefined): string {
  if (value === null || value === undefined) return NOTHING;
  if (value > 0 && value < 0.005) return "< 0.01";
  return value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
}

/** A metric with four significant digits; very small and very large ones in powers of ten. */
export function metric(value: number | string | null | undefined): string {
  if (value === null || value === undefined) return NOTHING;
  if (typeof value === "string") return value;
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return value.toExponential(2);
  return size < 1e4 ? significant(value, 4) : grouped(value);
}

/** Samples or tokens a second: four digits, large ones with separators. */
export function rate(value: number | null | undefined): string {
  const isLarge = value !== null && value !== undefined && value >= 1e6;
  return isLarge ? grouped(value) : metric(value);
}

/** The value of a metric or parameter; `constructor` is a name like any other. */
export function valueAt<T>(record: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

/** The number behind a metric; NaN and infinities travel as text. */
export function toNumber(value: number | string | null | undefined): number | null {
  if (value === null || value === undefined) return null;
  if (typeof value === "number") return value;
  if (/^-?inf/i.test(value)) return value.startsWith("-") ? -Infinity : Infinity;
  return Number.parseFloat(value);
}

/** A value from 0 to 100 as whole percents, a smaller one than 1 in two digits. */
export function percent(value: number | null | undefined): string {
  if (value === null || value === undefined) return NOTHING;
  const isSmall = value > 1e-3 && value < 1;
  return `${isSmall ? significant(value, 2) : Math.round(value)} %`;
}

/** The same of a share from 0 to 1. */
export function share(value: number | null | undefined): string {
  return percent(value === null || value === undefined ? null : 100 * value);
}

/**
 * Seconds as one or two units, the smaller one rounded to the nearest: "310 ms", "42 s", "3 min 20 s",
 * "2 h 5 min", "3 d 4 h". `cluster/durations.py` does the same.
 */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NOTHING;
  if (seconds === 0) return "0 s";
  if (seconds < 999.5e-6) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 999.5e-3) return `${significant(seconds * 1e3, 3)} ms`;
  if (seconds < 10) return `${significant(seconds, 2)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return joined(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 24 * 60) return joined(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.round(seconds / 3600);
  return joined(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** The largest unit alone, for how long ago something was: "8 s", "4 min", "3 h", "12 d". */
export function age(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h`;
  return `${Math.floor(whole / 86400)} d`;
}

type Precision = "seconds" | "minutes";

/**
 * A moment in local time: "16:25:54 UTC+1" today, "2026-11-23 16:25:54 UTC+1" on another day.
 * `named` is the zone that a list names once, and leaves out where it applies.
 */
export function moment(value: string | number, precision?: Precision, named?: string): string {
  const zone = timeZone(value);
  return zone === named ? clock(value, precision) : `${clock(value, precision)} ${zone}`;
}

/** The same without the time zone. */
export function clock(value: string | number, precision: Precision = "seconds"): string {
  const text = dateAndTime(value).slice(0, precision === "seconds" ? undefined : -3);
  const today = dateAndTime(Date.now()).slice(0, 11);
  return text.startsWith(today) ? text.slice(11) : text;
}

/** "2026-11-23 16:25:54" in local time. */
export function dateAndTime(value: string | number): string {
  // Sweden writes dates and times as ISO 8601 does.
  return new Date(value).toLocaleString("sv-SE");
}

/** The local time zone at a moment: "UTC", "UTC+5:30". */
export function timeZone(value: string | number = Date.now()): string {
  const minutes = -new Date(value).getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const size = Math.abs(minutes);
  const rest = size % 60 === 0 ? "" : `:${String(size % 60).padStart(2, "0")}`;
  return `UTC${minutes < 0 ? "-" : "+"}${Math.floor(size / 60)}${rest}`;
}

export function watts(value: number | null | undefined): string {
  if (value === null || value === undefined) return NOTHING;
  if (value < 1000) return `${Math.round(value)} W`;
  return `${(value / 1000).toFixed(Math.max(0, 5 - Math.floor(Math.log10(value))))} kW`;
}

export function celsius(value: number | null | undefined): string {
  return value === null || value === undefined ? NOTHING : `${Math.round(value)} °C`;
}

export function plural(number: number, noun: string): string {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

function joined(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

function grouped(value: number): string {
  return Number.parseFloat(value.toPrecision(4)).toLocaleString("en-US");
}

function significant(value: number, digits: number): string {
  return String(Number.parseFloat(value.toPrecision(digits)));
}
