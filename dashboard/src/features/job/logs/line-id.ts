import type { LogLine } from "@/shared/api/types";

/** A line's id in a URL: `ATTEMPT.RANK.STREAM.OFFSET`. */
export function lineId(line: LogLine): string {
  return `${line.attempt}.${line.rank}.${line.stream}.${line.offset}`;
}

export function isLineId(value: unknown): value is string {
  return typeof value === "string" && /^\d{1,9}\.\d{1,9}\.(stdout|stderr)\.\d{1,18}$/.test(value);
}
