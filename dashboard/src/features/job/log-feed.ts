import { isRefused } from "@/shared/api/problem";
import type { LogLine } from "@/shared/api/types";
import type { LogFrom, LogPage } from "./api/read-logs";

export interface LogState {
  lines: LogLine[];
  /** Rises by one for each line that was given up at the beginning, falls for each put ahead. */
  first: number;
  /** There is nothing ahead of the first line. */
  atStart: boolean;
  /** There was nothing behind the last line when it was read; what comes is added by itself. */
  atEnd: boolean;
  loading: boolean;
  error: unknown;
}

/** Where reading begins: at the end, at the beginning, or at a line. */
export type LogStart = "end" | "beginning" | { at: string };

export const TAIL = 1000;
export const MAX_LINES = 200_000;
export const PAGE = 5000;
const LIMIT = 1000;
/** News are gathered for a moment, so that a chatty rank costs a few requests a second. */
const PAUSE_MS = 200;
const RETRY_MS = 2000;

const NOTHING: LogState = {
  lines: [],
  first: 0,
  atStart: false,
  atEnd: false,
  loading: true,
  error: null,
};

/** Lines that were read together: where they begin and where what is behind them begins. */
interface Piece {
  count: number;
  previous: string | null;
  next: string | null;
}

type Wish = "later" | "earlier";

/**
 * A run of a job's lines without gaps, in order, each once. It grows at either end when it is asked to,
 * and by itself while it holds the newest line; with too many lines it gives up those at the far end.
 */
export class LogFeed {
  private state = NOTHING;
  private readonly listeners = new Set<() => void>();
  private pieces: Piece[] = [];
  private reading: Wish | null = null;
  private readonly wishes = new Set<Wish>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stopped = true;
  /** Counts beginnings: what was asked for an earlier one is thrown away. */
  private epoch = 0;
  private refused = false;

  constructor(
    private readonly read: (from: LogFrom) => Promise<LogPage>,
    private begin: LogStart = "end",
  ) {}

  start(): void {
    this.stopped = false;
    this.wake();
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  /** Begin anew somewhere else. */
  goTo(begin: LogStart): void {
    this.epoch += 1;
    this.begin = begin;
    this.pieces = [];
    this.reading = null;
    this.refused = false;
    this.wishes.clear();
    clearTimeout(this.timer);
    this.timer = undefined;
    this.show(NOTHING);
    this.wake();
  }

  /** There may be more lines at the end. */
  wake(): void {
    if (this.pieces.length === 0 || this.state.atEnd) this.soon("later");
  }

  /** Read on at the end that was reached. */
  later = (): void => {
    if (this.pieces.length > 0 && !this.state.atEnd) this.now("later");
  };

  earlier = (): void => {
    if (this.pieces.length > 0 && !this.state.atStart) this.now("earlier");
  };

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  get = (): LogState => this.state;

  private soon(wish: Wish): void {
    if (this.stopped || this.refused) return;
    this.wishes.add(wish);
    if (this.reading !== null) return;
    const pause = this.pieces.length === 0 ? 0 : PAUSE_MS;
    this.timer ??= setTimeout(() => void this.run(), pause);
  }

  private now(wish: Wish): void {
    if (this.stopped || this.refused || this.reading === wish) return;
    this.wishes.add(wish);
    if (this.reading === null) void this.run();
  }

  private async run(): Promise<void> {
    const { epoch } = this;
    clearTimeout(this.timer);
    this.timer = undefined;
    // Who waits for older lines is looking at where they will be.
    const wish = this.wishes.has("earlier") ? "earlier" : "later";
    this.wishes.delete(wish);
    this.reading = wish;
    try {
      if (this.pieces.length === 0) await this.readFirst(epoch);
      else if (wish === "earlier") await this.readEarlier(epoch);
      else await this.readLater(epoch);
      if (epoch !== this.epoch) return;
      this.show({ loading: false, error: null });
    } catch (error) {
      if (epoch !== this.epoch) return;
      this.show({ loading: false, error });
      this.reading = null;
      // A line that is not there will not come: what was refused waits for another beginning.
      if (isRefused(error)) {
        this.refused = true;
        this.wishes.clear();
        return;
      }
      this.wishes.add(wish);
      if (!this.stopped) this.timer ??= setTimeout(() => void this.run(), RETRY_MS);
      return;
    }
    this.reading = null;
    const [next] = this.wishes;
    if (this.wishes.has("earlier")) this.now("earlier");
    else if (next !== undefined) this.soon(next);
  }

  private async readFirst(epoch: number): Promise<void> {
    const page = await this.read(firstOf(this.begin));
    if (this.isOver(epoch)) return;
    this.pieces = [pieceOf(page)];
    this.show({
      lines: page.items,
      atStart: page.previous_cursor === null,
      atEnd: !page.more,
    });
  }

  private async readLater(epoch: number): Promise<void> {
    const catchingUp = this.state.atEnd;
    for (;;) {
      const last = this.pieces.at(-1);
      if (last === undefined || last.next === null) return;
      const page = await this.read({ after: last.next, limit: catchingUp ? LIMIT : PAGE });
      if (this.isOver(epoch)) return;
      if (page.items.length > 0) this.pieces.push(pieceOf(page));
      else last.next = page.next_cursor;
      const lines = this.state.lines.concat(page.items);
      this.show({ ...this.bounded(lines, "start"), atEnd: !page.more });
      if (!page.more || !catchingUp) return;
    }
  }

  private async readEarlier(epoch: number): Promise<void> {
    const begin = this.pieces[0];
    if (begin === undefined || begin.previous === null) return;
    const page = await this.read({ before: begin.previous, limit: PAGE });
    if (this.isOver(epoch)) return;
    this.pieces.unshift(pieceOf(page));
    const lines = page.items.concat(this.state.lines);
    const first = this.state.first - page.items.length;
    this.show({ ...this.bounded(lines, "end", first), atStart: page.previous_cursor === null });
  }

  /** At most so many lines, whole pieces given up at one end. */
  private bounded(
    lines: LogLine[],
    at: "start" | "end",
    first = this.state.first,
  ): Partial<LogState> {
    let excess = lines.length - MAX_LINES;
    let given = 0;
    while (excess > 0 && this.pieces.length > 1) {
      const piece = at === "start" ? this.pieces.shift() : this.pieces.pop();
      given += piece?.count ?? 0;
      excess -= piece?.count ?? 0;
    }
    if (given === 0) return { lines, first };
    if (at === "start") return { lines: lines.slice(given), first: first + given, atStart: false };
    return { lines: lines.slice(0, -given), first, atEnd: false };
  }

  private isOver(epoch: number): boolean {
    return this.stopped || epoch !== this.epoch;
  }

  private show(change: Partial<LogState>): void {
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener();
  }
}

function firstOf(begin: LogStart): LogFrom {
  if (begin === "end") return { tail: TAIL };
  return begin === "beginning" ? { limit: PAGE } : { at: begin.at, limit: TAIL };
}

function pieceOf(page: LogPage): Piece {
  return { count: page.items.length, previous: page.previous_cursor, next: page.next_cursor };
}
