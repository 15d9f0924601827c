import type { LogPage } from "@/features/job/api/logs";
import { isRefused } from "@/shared/api/problem";
import type { LogLine } from "@/shared/api/types";
import { Signal } from "@/shared/live/signal";

export interface Matches {
  lines: LogLine[];
  /** All stored lines were searched. */
  done: boolean;
  error: unknown;
}

export const MAX_MATCHES = 5000;
const PAGE = 1000;
const PAUSE_MS = 500;
const RETRY_MS = 2000;

/** The lines of a job that contain a text, in order, including new ones as they arrive. */
export class LogSearch {
  readonly found = new Signal<Matches>({ lines: [], done: false, error: null });
  private cursor: string | null = null;
  private reading = false;
  private again = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stopped = true;

  constructor(private readonly read: (after: string | null, limit: number) => Promise<LogPage>) {}

  start(): void {
    this.stopped = false;
    this.wake();
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  /** Continue: there may be new lines. */
  wake(): void {
    if (this.stopped || this.isFull) return;
    if (this.reading) this.again = true;
    else this.timer ??= setTimeout(() => void this.run(), this.cursor === null ? 0 : PAUSE_MS);
  }

  private get isFull(): boolean {
    return this.found.value.lines.length >= MAX_MATCHES;
  }

  private async run(): Promise<void> {
    this.timer = undefined;
    this.reading = true;
    this.again = false;
    try {
      let more = true;
      while (more && !this.isFull) {
        const page = await this.read(this.cursor, PAGE);
        if (this.stopped) break;
        this.cursor = page.next_cursor;
        more = page.more;
        this.found.update(({ lines }) => ({
          lines: page.items.length > 0 ? lines.concat(page.items) : lines,
          done: !more,
          error: null,
        }));
      }
    } catch (error) {
      this.reading = false;
      this.found.update((found) => ({ ...found, error }));
      // A finished job sends nothing that would wake the search again.
      if (!this.stopped && !isRefused(error)) {
        this.timer ??= setTimeout(() => void this.run(), RETRY_MS);
      }
      return;
    }
    this.reading = false;
    if (this.again) this.wake();
  }
}
