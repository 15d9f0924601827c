import type { LogLine } from "@/shared/api/types";

/** A line's text without the `[rank0]: ` of its own rank, which torch puts before exceptions. */
export function withoutRank({ rank, text }: Pick<LogLine, "rank" | "text">): string {
  const match = /^\[rank(\d+)\]: ?/.exec(text);
  return match !== null && Number(match[1]) === rank ? text.slice(match[0].length) : text;
}
