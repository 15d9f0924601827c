import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { LogPage } from "@/features/job/api/logs";
import { ApiError } from "@/shared/api/problem";
import type { LogLine } from "@/shared/api/types";
import { LogSearch } from "./log-search";

/** Finds one line in ten, and looks at a hundred lines a page. */
class Log {
  length = 0;
  asked: (string | null)[] = [];
  failures: Error[] = [];

  read = async (after: string | null): Promise<LogPage> => {
    this.asked.push(after);
    const failure = this.failures.shift();
    if (failure !== undefined) throw failure;
    const from = Number(after ?? 0);
    const end = Math.min(this.length, from + 100);
    const offsets = Array.from({ length: end - from }, (_, i) => from + i);
    const items = offsets
      .filter((offset) => offset % 10 === 0)
      .map((offset) => ({ attempt: 1, rank: 0, stream: "stdout", offset }) as LogLine);
    return { items, next_cursor: String(end), previous_cursor: null, more: end < this.length };
  };
}

let log: Log;
let search: LogSearch;

beforeEach(() => {
  vi.useFakeTimers();
  log = new Log();
  search = new LogSearch(log.read);
});

afterEach(() => {
  search.stop();
  vi.useRealTimers();
});

describe("LogSearch", () => {
  it("searches page by page, then only new lines", async () => {
    log.length = 250;
    search.start();
    await vi.advanceTimersByTimeAsync(1000);
    expect(search.found.value).toMatchObject({ done: true, error: null });
    expect(search.found.value.lines).toHaveLength(25);
    expect(log.asked).toEqual([null, "100", "200"]);
    log.length = 270;
    search.wake();
    await vi.advanceTimersByTimeAsync(1000);
    expect(search.found.value.lines.map((line) => line.offset).slice(-2)).toEqual([250, 260]);
    expect(log.asked.at(-1)).toBe("250");
  });

  it("retries after an error, unless it was refused", async () => {
    log.length = 250;
    log.failures = [new Error("nothing answers")];
    search.start();
    await vi.advanceTimersByTimeAsync(100);
    expect(search.found.value).toMatchObject({ done: false, error: new Error("nothing answers") });
    await vi.advanceTimersByTimeAsync(5000);
    expect(search.found.value).toMatchObject({ done: true, error: null });
    expect(search.found.value.lines).toHaveLength(25);

    log.failures = [new ApiError(422, "Invalid request", "search: too long")];
    const asked = log.asked.length;
    search.wake();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(log.asked).toHaveLength(asked + 1);
  });
});
