import type { LogLine } from "@/shared/api/types";
import type { LogFrom, LogPage } from "./api/read-logs";

export interface LogState {
  lines: LogLine[];
  /** Older lines that are not shown: before the beginning, or given up to bound memory. */
  earlier: boolean;
  loading: boolean;
  error: unknown;
}

export const TAIL = 1000;
export const MAX_LINES = 20_000;
const LIMIT = 1000;
/** News are gathered for a moment, so that a chatty rank costs a few requests a second. */
const PAUSE_MS = 200;
const RETRY_MS = 2000;

/** Lines of a job in order, each once: the tail first, then whatever is behind the last cursor. */
export class LogFeed {
  private state: LogState = { lines: [], earlier: false, loading: true, error: null };
  private readonly listeners = new Set<() => void>();
  private cursor: string | null = null;
  private reading = false;
  private again = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stopped = true;

  constructor(private readonly read: (from: LogFrom) => Promise<LogPage>) {}

  start(): void {
    this.stopped = false;
    this.wake();
  }

  /** There may be more lines. */
  wake(): void {
    if (this.stopped) return;
    if (this.reading) {
      this.again = true;
      return;
    }
    this.timer ??= setTimeout(() => this.run(), this.cursor === null ? 0 : PAUSE_MS);
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  get = (): LogState => this.state;

  private async run(): Promise<void> {
    this.timer = undefined;
    this.reading = true;
    this.again = false;
    try {
      await this.readOn();
      this.show({ loading: false, error: null });
    } catch (error) {
      this.show({ loading: false, error });
      this.timer ??= this.stopped ? undefined : setTimeout(() => this.run(), RETRY_MS);
    } finally {
      this.reading = false;
    }
    if (this.again) this.wake();
  }

  private async readOn(): Promise<void> {
    for (;;) {
      const first = this.cursor === null;
      const page = await this.read(
        this.cursor === null ? { tail: TAIL } : { after: this.cursor, limit: LIMIT },
      );
      if (this.stopped) return;
      const moved = page.next_cursor !== null && page.next_cursor !== this.cursor;
      this.cursor = page.next_cursor ?? this.cursor;
      if (page.items.length > 0) this.add(page.items, first && page.items.length >= TAIL);
      if (first || !moved || page.items.length < LIMIT) return;
    }
  }

  private add(items: LogLine[], cutAtStart: boolean): void {
    const lines = [...this.state.lines, ...items];
    const excess = lines.length - MAX_LINES;
    if (excess > 0) lines.splice(0, excess);
    this.show({ lines, earlier: this.state.earlier || cutAtStart || excess > 0 });
  }

  private show(change: Partial<LogState>): void {
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener();
  }
}
