import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { LogFrom, LogPage } from "@/features/job/api/logs";
import { ApiError } from "@/shared/api/problem";
import type { LogLine } from "@/shared/api/types";
import { LogFeed, MAX_LINES, PAGE, TAIL } from "./log-feed";

/** A coordinator's log: cursors are numbers of lines. */
class Log {
  lines: LogLine[] = [];
  requests: LogFrom[] = [];
  away = false;

  write(count: number): void {
    for (let i = 0; i < count; i++) {
      const offset = this.lines.length;
      const text = `line ${offset}`;
      this.lines.push({ attempt: 1, rank: 0, stream: "stdout", offset, time: "", text } as LogLine);
    }
  }

  read = async (from: LogFrom): Promise<LogPage> => {
    this.requests.push(from);
    if (this.away) throw new Error("nothing answers");
    const limit = "tail" in from ? from.tail : from.limit;
    let start = 0;
    let end = this.lines.length;
    if ("tail" in from) start = end - limit;
    else if ("after" in from) start = Number(from.after);
    else if ("at" in from) start = Number(from.at.split(".")[3]) - limit / 2;
    else if ("before" in from) {
      end = Number(from.before);
      start = end - limit;
    }
    start = Math.max(0, start);
    end = Math.min(end, start + limit);
    return {
      items: this.lines.slice(start, end),
      next_cursor: String(end),
      previous_cursor: start === 0 ? null : String(start),
      more: end < this.lines.length,
    };
  };
}

let log: Log;
let feed: LogFeed;
const pass = (milliseconds = 250) => vi.advanceTimersByTimeAsync(milliseconds);
const offsets = () => feed.state.value.lines.map((line) => line.offset);
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
  it("reads the end first, then new lines, each once", async () => {
    log.write(5);
    feed.start();
    await pass();
    expect(offsets()).toEqual(upTo(5));
    log.write(3);
    feed.wake();
    feed.wake();
    await pass();
    expect(offsets()).toEqual(upTo(8));
    expect(log.requests).toHaveLength(2);
  });

  it("reads on until it has all lines", async () => {
    feed.start();
    await pass();
    log.write(3500);
    feed.wake();
    await pass();
    expect(offsets()).toEqual(upTo(3500));
  });

  it("reads earlier lines on request, up to the first", async () => {
    log.write(TAIL + PAGE + 10);
    feed.start();
    await pass();
    expect(feed.state.value).toMatchObject({ atStart: false, atEnd: true });
    feed.earlier();
    feed.earlier();
    await pass();
    expect(offsets()).toEqual(upTo(TAIL + PAGE + 10).slice(10));
    feed.earlier();
    await pass();
    expect(offsets()).toEqual(upTo(TAIL + PAGE + 10));
    expect(feed.state.value.atStart).toBe(true);
    log.write(1);
    feed.wake();
    await pass();
    expect(offsets().at(-1)).toBe(TAIL + PAGE + 10);
  });

  it("reads earlier lines requested while it reads later ones", async () => {
    log.write(TAIL + 10);
    feed.start();
    await pass();
    log.write(1);
    feed.wake();
    vi.advanceTimersByTime(200);
    feed.earlier();
    await pass();
    expect(offsets()).toEqual(upTo(TAIL + 11));
  });

  it("starts at a line, and reads on to the end only on request", async () => {
    log.write(TAIL * 10);
    feed = new LogFeed(log.read, { at: "1.0.stdout.3000" });
    feed.start();
    await pass();
    expect(offsets()).toContain(3000);
    expect(feed.state.value).toMatchObject({ atStart: false, atEnd: false });
    feed.wake();
    await pass();
    expect(log.requests).toHaveLength(1);
    feed.later();
    await pass();
    feed.later();
    await pass();
    expect(offsets().at(-1)).toBe(TAIL * 10 - 1);
    expect(feed.state.value.atEnd).toBe(true);
    feed.goTo("beginning");
    await pass();
    expect(offsets()).toEqual(upTo(PAGE));
  });

  it("drops an answer that arrives after a jump", async () => {
    log.write(TAIL * 3);
    let release = () => {};
    const slow = new Promise<void>((resolve) => {
      release = resolve;
    });
    feed = new LogFeed(async (from) => {
      const page = await log.read(from);
      if ("before" in from) await slow;
      return page;
    });
    feed.start();
    await pass();
    feed.earlier();
    feed.goTo("beginning");
    await pass();
    release();
    await pass();
    expect(offsets()).toEqual(upTo(TAIL * 3));
  });

  it("reads once more for lines that arrived while it was reading", async () => {
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

  it("shows a failure, retries, and misses nothing", async () => {
    log.write(2);
    feed.start();
    await pass();
    log.away = true;
    log.write(2);
    feed.wake();
    await pass();
    expect(feed.state.value.error).toBeInstanceOf(Error);
    expect(offsets()).toEqual(upTo(2));
    log.away = false;
    await pass(2500);
    expect(feed.state.value.error).toBeNull();
    expect(offsets()).toEqual(upTo(4));
  });

  it("drops the oldest lines above the limit, and can read them again", async () => {
    feed.start();
    await pass();
    log.write(MAX_LINES + 500);
    feed.wake();
    await pass();
    expect(offsets().length).toBeLessThanOrEqual(MAX_LINES);
    expect(offsets().at(-1)).toBe(MAX_LINES + 499);
    expect(offsets()[0]).toBeGreaterThan(0);
    expect(feed.state.value.atStart).toBe(false);
    feed.earlier();
    await pass();
    expect(offsets()[0]).toBe(0);
    expect(feed.state.value).toMatchObject({ atStart: true, atEnd: false });
  });

  it("continues after a stop, as when a page is rendered twice", async () => {
    log.write(2);
    feed.start();
    feed.stop();
    await pass();
    expect(log.requests).toHaveLength(0);
    feed.start();
    await pass();
    expect(offsets()).toEqual(upTo(2));
  });

  it("requests a missing line once, until it starts elsewhere", async () => {
    log.write(10);
    const gone = new LogFeed(
      async (from) => {
        if (!("at" in from)) return log.read(from);
        log.requests.push(from);
        throw new ApiError(404, "Not found", "there is no such line");
      },
      { at: "1.0.stdout.99" },
    );
    gone.start();
    await pass(10_000);
    gone.wake();
    await pass(10_000);
    expect(log.requests).toHaveLength(1);
    expect(gone.state.value.error).toBeInstanceOf(ApiError);
    gone.goTo("end");
    await pass();
    expect(gone.state.value).toMatchObject({ error: null, atEnd: true });
    gone.stop();
  });
});
