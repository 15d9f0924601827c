import type { LogFrom, LogPage } from "@/features/job/api/logs";
import { isRefused } from "@/shared/api/problem";
import type { LogLine } from "@/shared/api/types";
import { Signal } from "@/shared/live/signal";

export interface LogState {
  lines: LogLine[];
  /** The first line is the job's first. */
  atStart: boolean;
  /** The last line was the newest when it was read; newer ones are added as they arrive. */
  atEnd: boolean;
  loading: boolean;
  error: unknown;
}

/** The place to start reading: the end, the beginning, or a line by its id. */
type LogStart = "end" | "beginning" | { at: string };

export const TAIL = 1000;
export const MAX_LINES = 200_000;
export const PAGE = 5000;
const LIMIT = 1000;
/** New lines are collected for a moment, so that a chatty rank costs a few requests a second. */
const PAUSE_MS = 200;
const RETRY_MS = 2000;

const NOTHING: LogState = {
  lines: [],
  atStart: false,
  atEnd: false,
  loading: true,
  error: null,
};

/** The size of a page that was read, and the cursors to the pages around it. */
interface LoadedPage {
  count: number;
  previous: string | null;
  next: string | null;
}

type Direction = "later" | "earlier";

/**
 * A contiguous range of a job's log lines, in order, each once. It grows at either end on request, and
 * by itself while it contains the newest line; above `MAX_LINES` it drops pages at the other end.
 */
export class LogFeed {
  readonly state = new Signal(NOTHING);
  private pages: LoadedPage[] = [];
  private reading: Direction | null = null;
  private readonly requested = new Set<Direction>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stopped = true;
  /** Rises with every `goTo`; answers to requests of an earlier epoch are dropped. */
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

  /** Start over at another place. */
  goTo(begin: LogStart): void {
    this.epoch += 1;
    this.begin = begin;
    this.pages = [];
    this.reading = null;
    this.refused = false;
    this.requested.clear();
    clearTimeout(this.timer);
    this.timer = undefined;
    this.show(NOTHING);
    this.wake();
  }

  /** Continue: there may be new lines at the end. */
  wake(): void {
    if (this.pages.length === 0 || this.state.value.atEnd) this.schedule("later");
  }

  /** Read the page after the last line; `earlier` the one before the first. */
  later = (): void => {
    if (this.pages.length > 0 && !this.state.value.atEnd) this.request("later");
  };

  earlier = (): void => {
    if (this.pages.length > 0 && !this.state.value.atStart) this.request("earlier");
  };

  private schedule(direction: Direction): void {
    if (this.stopped || this.refused) return;
    this.requested.add(direction);
    if (this.reading !== null) return;
    const pause = this.pages.length === 0 ? 0 : PAUSE_MS;
    this.timer ??= setTimeout(() => void this.run(), pause);
  }

  private request(direction: Direction): void {
    if (this.stopped || this.refused || this.reading === direction) return;
    this.requested.add(direction);
    if (this.reading === null) void this.run();
  }

  private async run(): Promise<void> {
    const { epoch } = this;
    clearTimeout(this.timer);
    this.timer = undefined;
    // Earlier lines first: the reader waits for them, and the newest are off the screen.
    const direction = this.requested.has("earlier") ? "earlier" : "later";
    this.requested.delete(direction);
    this.reading = direction;
    try {
      if (this.pages.length === 0) await this.readFirst(epoch);
      else if (direction === "earlier") await this.readEarlier(epoch);
      else await this.readLater(epoch);
      if (epoch !== this.epoch) return;
      this.show({ loading: false, error: null });
    } catch (error) {
      if (epoch !== this.epoch) return;
      this.show({ loading: false, error });
      this.reading = null;
      // The server refused, as for a line that does not exist: only `goTo` helps.
      if (isRefused(error)) {
        this.refused = true;
        this.requested.clear();
        return;
      }
      this.requested.add(direction);
      if (!this.stopped) this.timer ??= setTimeout(() => void this.run(), RETRY_MS);
      return;
    }
    this.reading = null;
    const [next] = this.requested;
    if (this.requested.has("earlier")) this.request("earlier");
    else if (next !== undefined) this.schedule(next);
  }

  private async readFirst(epoch: number): Promise<void> {
    const page = await this.read(firstOf(this.begin));
    if (this.isOutdated(epoch)) return;
    this.pages = [loadedPage(page)];
    this.show({
      lines: page.items,
      atStart: page.previous_cursor === null,
      atEnd: !page.more,
    });
  }

  private async readLater(epoch: number): Promise<void> {
    const catchingUp = this.state.value.atEnd;
    for (;;) {
      const last = this.pages.at(-1);
      if (last === undefined || last.next === null) return;
      const page = await this.read({ after: last.next, limit: catchingUp ? LIMIT : PAGE });
      if (this.isOutdated(epoch)) return;
      if (page.items.length > 0) this.pages.push(loadedPage(page));
      else last.next = page.next_cursor;
      const lines = this.state.value.lines.concat(page.items);
      this.show({ ...this.bounded(lines, "start"), atEnd: !page.more });
      if (!page.more || !catchingUp) return;
    }
  }

  private async readEarlier(epoch: number): Promise<void> {
    const begin = this.pages[0];
    if (begin === undefined || begin.previous === null) return;
    const page = await this.read({ before: begin.previous, limit: PAGE });
    if (this.isOutdated(epoch)) return;
    this.pages.unshift(loadedPage(page));
    const lines = page.items.concat(this.state.value.lines);
    this.show({ ...this.bounded(lines, "end"), atStart: page.previous_cursor === null });
  }

  /** Drops whole pages at one end while there are more than `MAX_LINES`. */
  private bounded(lines: LogLine[], at: "start" | "end"): Partial<LogState> {
    let excess = lines.length - MAX_LINES;
    let dropped = 0;
    while (excess > 0 && this.pages.length > 1) {
      const page = at === "start" ? this.pages.shift() : this.pages.pop();
      dropped += page?.count ?? 0;
      excess -= page?.count ?? 0;
    }
    if (dropped === 0) return { lines };
    if (at === "start") return { lines: lines.slice(dropped), atStart: false };
    return { lines: lines.slice(0, -dropped), atEnd: false };
  }

  private isOutdated(epoch: number): boolean {
    return this.stopped || epoch !== this.epoch;
  }

  private show(change: Partial<LogState>): void {
    this.state.update((state) => ({ ...state, ...change }));
  }
}

function firstOf(begin: LogStart): LogFrom {
  if (begin === "end") return { tail: TAIL };
  return begin === "beginning" ? { limit: PAGE } : { at: begin.at, limit: TAIL };
}

function loadedPage(page: LogPage): LoadedPage {
  return { count: page.items.length, previous: page.previous_cursor, next: page.next_cursor };
}
