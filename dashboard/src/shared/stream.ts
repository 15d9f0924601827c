/**
 * Follows one job over a websocket without gap or repeat.
 *
 * Every frame carries a durable `seq`. The stream is asked for what is behind the last frame that was
 * taken, so a broken connection goes on where it broke, also after a reload of the page or a restart
 * of the coordinator. A `reset` frame says that what is behind `after` can't be told: then everything
 * is loaded through REST, which includes at least what came up to the reset, and the frames behind it
 * are held back until it is there.
 *
 * A page that knows nothing yet asks for what is behind the end of time. It can't be told that, so
 * every beginning is a reset too, and there is one way to begin.
 */

export interface Frame {
  seq: number;
  type: string;
  [key: string]: unknown;
}

/**
 * - `connecting`   nothing was loaded yet
 * - `live`         connected, and heard from a moment ago
 * - `reconnecting` the connection broke a moment ago
 * - `stale`        nothing was heard for some seconds: what the page shows is old
 * - `gone`         there is no such job
 */
export type Phase = "connecting" | "live" | "reconnecting" | "stale" | "gone";

export interface StreamStatus {
  phase: Phase;
  /** When the coordinator was last heard, in milliseconds since the epoch. */
  heardAt: number | null;
}

/** `behind`: the coordinator answers, and tells what the stream should have told. */
export type Probe = "current" | "behind";

/** The part of a WebSocket that is used, so that tests can bring their own. */
export interface SocketLike {
  onopen: (() => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number }) => void) | null;
  close(): void;
}

export interface StreamOptions {
  /** The address that sends the frames behind a `seq`. */
  url: (after: number) => string;
  /** Load everything through REST, in place of what was there. */
  reload: () => Promise<void>;
  deliver: (frames: Frame[]) => void;
  onStatus: (status: StreamStatus) => void;
  /** Asked when the stream has been silent for a while; a rejection means that nothing answers. */
  probe: () => Promise<Probe>;
  connect?: (url: string) => SocketLike;
  random?: () => number;
}

export const UNKNOWN_JOB = 4404;
/** Behind every frame that there will ever be. */
export const END = Number.MAX_SAFE_INTEGER;
/** Silence after which the coordinator is asked whether it is still there. */
export const SILENCE_MS = 5000;
/** Frames that are held back while everything is loaded; with more, it begins again. */
const MAX_HELD = 50_000;
const TICK_MS = 1000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5000;

type Timer = ReturnType<typeof setTimeout>;

export class JobStream {
  private socket: SocketLike | null = null;
  /** The highest `seq` that came. */
  private after = END;
  /** Frames that wait for what is being loaded; null when nothing is. */
  private held: Frame[] | null = null;
  private loads = 0;
  private loaded = false;
  private failures = 0;
  private reconnecting: Timer | undefined;
  private reloading: Timer | undefined;
  private readonly ticker: Timer;
  private probing = false;
  private wasBehind = false;
  private ended = false;
  private status: StreamStatus = { phase: "connecting", heardAt: null };

  constructor(private readonly options: StreamOptions) {
    this.ticker = setInterval(() => this.tick(), TICK_MS);
  }

  start(): void {
    this.open();
  }

  stop(): void {
    this.ended = true;
    clearTimeout(this.reconnecting);
    clearTimeout(this.reloading);
    clearInterval(this.ticker);
    this.drop();
  }

  /** Try again now instead of waiting for the next turn. */
  retryNow(): void {
    if (this.ended || this.socket !== null) return;
    this.failures = 0;
    this.open();
  }

  private open(): void {
    clearTimeout(this.reconnecting);
    const connect = this.options.connect ?? ((url) => new WebSocket(url) as SocketLike);
    const socket = connect(this.options.url(this.after));
    this.socket = socket;
    socket.onopen = () => {
      if (this.socket !== socket) return;
      this.failures = 0;
      this.hear();
    };
    socket.onmessage = (event) => {
      if (this.socket === socket) this.take(event.data);
    };
    socket.onclose = (event) => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (event.code === UNKNOWN_JOB) this.finish();
      else this.reconnectLater();
    };
  }

  private take(data: unknown): void {
    const frames = parsed(data);
    if (frames === null) {
      // What can't be read can't be skipped safely either: ask for it again.
      this.reconnect();
      return;
    }
    this.hear();
    for (const frame of frames) if (frame.type === "reset") this.reset(frame.seq);
    const fresh = frames
      .filter((frame) => frame.seq > this.after && frame.type !== "reset")
      .sort((a, b) => a.seq - b.seq);
    const last = fresh.at(-1);
    if (last === undefined) return;
    this.after = last.seq;
    this.wasBehind = false;
    if (this.held === null) this.options.deliver(fresh);
    else this.hold(fresh);
  }

  private hold(frames: Frame[]): void {
    this.held?.push(...frames);
    if (this.held !== null && this.held.length > MAX_HELD) {
      this.after = END;
      this.reconnect();
    }
  }

  private reset(seq: number): void {
    this.after = seq;
    this.held = [];
    this.loads += 1;
    void this.load(this.loads);
  }

  private async load(number: number): Promise<void> {
    clearTimeout(this.reloading);
    try {
      await this.options.reload();
    } catch (error) {
      if (this.ended || number !== this.loads) return;
      if (isNotFound(error)) this.finish();
      else this.reloading = setTimeout(() => void this.load(number), this.pause());
      return;
    }
    // A later reset loads more than this did.
    if (this.ended || number !== this.loads) return;
    const held = this.held ?? [];
    this.held = null;
    this.loaded = true;
    if (held.length > 0) this.options.deliver(held);
    this.hear();
  }

  private reconnect(): void {
    this.drop();
    this.reconnectLater();
  }

  private reconnectLater(): void {
    if (this.status.phase === "live") this.show("reconnecting");
    // Where no stream comes through, the page shows at least what REST tells.
    if (!this.loaded && this.loads === 0) void this.load(0);
    this.reconnecting = setTimeout(() => this.open(), this.pause());
  }

  /** Longer after every failure, and never the same for all pages of a restarted coordinator. */
  private pause(): number {
    const random = this.options.random ?? Math.random;
    const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.failures);
    this.failures += 1;
    return pause * (0.5 + random() / 2);
  }

  /** Silence alone is no news: a paused job has nothing to say. So ask. */
  private tick(): void {
    if (this.silence() < SILENCE_MS) return;
    if (this.socket === null || this.held !== null) {
      if (this.status.heardAt !== null || this.failures > 2) this.show("stale");
      return;
    }
    if (!this.loaded) {
      // A connection that does not even say where to begin is none.
      this.hear();
      this.reconnect();
      return;
    }
    if (this.probing) return;
    this.probing = true;
    const asked = this.socket;
    this.options.probe().then(
      (found) => this.probed(asked, found),
      () => this.probed(asked, "silent"),
    );
  }

  private probed(asked: SocketLike, found: Probe | "silent"): void {
    this.probing = false;
    if (this.ended || this.socket !== asked || this.silence() < SILENCE_MS) return;
    if (found === "silent") {
      this.show("stale");
      this.reconnect();
      return;
    }
    this.hear();
    // A connection can die without a word, as when a laptop slept. Once is enough: if a new one is
    // silent as well, there is nothing to be told.
    if (found === "behind" && !this.wasBehind) {
      this.wasBehind = true;
      this.reconnect();
    }
  }

  private silence(): number {
    return Date.now() - (this.status.heardAt ?? 0);
  }

  private hear(): void {
    this.status = { ...this.status, heardAt: Date.now() };
    if (this.loaded && this.socket !== null) this.show("live");
  }

  private show(phase: Phase): void {
    if (this.ended || (this.status.phase === phase && phase !== "live")) return;
    this.status = { ...this.status, phase };
    this.options.onStatus(this.status);
  }

  private finish(): void {
    this.show("gone");
    this.stop();
  }

  private drop(): void {
    const socket = this.socket;
    this.socket = null;
    socket?.close();
  }
}

/** One message holds one frame or a list of them; null: it is neither. */
function parsed(data: unknown): Frame[] | null {
  if (typeof data !== "string") return null;
  try {
    const value: unknown = JSON.parse(data);
    const frames: unknown[] = Array.isArray(value) ? value : [value];
    return frames.every(isFrame) ? frames : null;
  } catch {
    return null;
  }
}

function isFrame(value: unknown): value is Frame {
  if (typeof value !== "object" || value === null) return false;
  const { seq, type } = value as Partial<Frame>;
  return typeof seq === "number" && typeof type === "string";
}

function isNotFound(error: unknown): boolean {
  return typeof error === "object" && error !== null && "status" in error && error.status === 404;
}
