import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { LogLine } from "@/shared/api/types";
import type { LogFrom, LogPage } from "./api/read-logs";
import { LogFeed, MAX_LINES, TAIL } from "./log-feed";

/** A coordinator's log: cursors are numbers of lines. */
class Log {
  lines: LogLine[] = [];
  asked: LogFrom[] = [];
  away = false;

  write(count: number): void {
    for (let i = 0; i < count; i++) {
      const offset = this.lines.length;
      const text = `line ${offset}`;
      this.lines.push({ attempt: 1, rank: 0, stream: "stdout", offset, time: "", text } as LogLine);
    }
  }

  read = async (from: LogFrom): Promise<LogPage> => {
    this.asked.push(from);
    if (this.away) throw new Error("nothing answers");
    const start = "tail" in from ? Math.max(0, this.lines.length - from.tail) : Number(from.after);
    const items = this.lines.slice(start, start + ("tail" in from ? from.tail : from.limit));
    return { items, next_cursor: String(start + items.length) };
  };
}

let log: Log;
let feed: LogFeed;
const pass = (milliseconds = 250) => vi.advanceTimersByTimeAsync(milliseconds);
const offsets = () => feed.get().lines.map((line) => line.offset);
const upTo = (count: number) => Array.from({ length: count }, (_, i) => i);

beforeEach(() => {
  vi.useFakeTimers();
  log = new Log();
  feed = new LogFeed(log.read);
});

afterEach(() => {
  feed.stop();
  vi.useRealTimers();
});

describe("LogFeed", () => {
  it("reads the end first, then what is new, each line once", async () => {
    log.write(5);
    feed.start();
    await pass();
    expect(offsets()).toEqual(upTo(5));
    log.write(3);
    feed.wake();
    feed.wake();
    await pass();
    expect(offsets()).toEqual(upTo(8));
    expect(log.asked).toHaveLength(2);
  });

  it("reads on until it has everything", async () => {
    feed.start();
    await pass();
    log.write(3500);
    feed.wake();
    await pass();
    expect(offsets()).toEqual(upTo(3500));
  });

  it("says that earlier lines are not shown", async () => {
    log.write(TAIL + 10);
    feed.start();
    await pass();
    expect(feed.get().earlier).toBe(true);
    expect(offsets().at(-1)).toBe(TAIL + 9);
  });

  it("reads once more for news that came while it was reading", async () => {
    feed.start();
    await pass();
    log.write(1);
    feed.wake();
    await vi.advanceTimersByTimeAsync(200);
    log.write(1);
    feed.wake();
    await pass();
    expect(offsets()).toEqual(upTo(2));
  });

  it("tells a failure, tries again by itself, and misses nothing", async () => {
    log.write(2);
    feed.start();
    await pass();
    log.away = true;
    log.write(2);
    feed.wake();
    await pass();
    expect(feed.get().error).toBeInstanceOf(Error);
    expect(offsets()).toEqual(upTo(2));
    log.away = false;
    await pass(2500);
    expect(feed.get().error).toBeNull();
    expect(offsets()).toEqual(upTo(4));
  });

  it("gives up the oldest lines when there are too many", async () => {
    feed.start();
    await pass();
    log.write(MAX_LINES + 500);
    feed.wake();
    await pass();
    expect(offsets()).toHaveLength(MAX_LINES);
    expect(offsets()[0]).toBe(500);
    expect(feed.get().earlier).toBe(true);
  });

  it("goes on after a stop, as when a page is rendered twice", async () => {
    log.write(2);
    feed.start();
    feed.stop();
    await pass();
    expect(log.asked).toHaveLength(0);
    feed.start();
    await pass();
    expect(offsets()).toEqual(upTo(2));
  });
});
