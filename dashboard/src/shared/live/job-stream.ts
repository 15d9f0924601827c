/**
 * Follows one job over a websocket without gap or repeat.
 *
 * Every frame carries a durable `seq`. The stream requests the frames after the last one it received,
 * so a connection resumes where it broke, also after a reload of the page or a restart of the
 * coordinator. A `reset` frame says that the frames after `after` are no longer available: then all
 * data is loaded through REST, which includes everything up to the reset, and later frames are buffered
 * until it is loaded.
 *
 * A new page requests the frames after `END`. The coordinator answers with a reset, so there is a
 * single way to start.
 */

export interface Frame {
  seq: number;
  type: string;
  [key: string]: unknown;
}

/**
 * - `connecting`   nothing is loaded yet
 * - `live`         connected, with a recent response
 * - `reconnecting` the connection broke a moment ago
 * - `stale`        no response for some seconds: the page shows old data
 * - `gone`         the job does not exist
 */
type Phase = "connecting" | "live" | "reconnecting" | "stale" | "gone";

export interface StreamStatus {
  phase: Phase;
  /** The time of the coordinator's last response before this phase, in ms since the epoch. */
  lastResponseAt: number | null;
}

/** `behind`: REST has data that the stream should have sent. */
export type Probe = "current" | "behind";

/** The part of a WebSocket that is used, so that tests can inject one. */
export interface SocketLike {
  onopen: (() => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number }) => void) | null;
  close(): void;
}

interface StreamOptions {
  /** URL of the frames after a `seq`. */
  url: (after: number) => string;
  /** Loads all data through REST, replacing the old. */
  reload: () => Promise<void>;
  deliver: (frames: Frame[]) => void;
  onStatus: (status: StreamStatus) => void;
  /**
   * Called when the stream has been silent for a while. A rejection means no response, and so does
   * `SILENCE_MS`, after which the signal aborts.
   */
  probe: (signal: AbortSignal) => Promise<Probe>;
  connect?: (url: string) => SocketLike;
  random?: () => number;
}

const UNKNOWN_JOB = 4404;
/** Greater than the `seq` of any frame. */
export const END = Number.MAX_SAFE_INTEGER;
/** Silence after which the coordinator is probed. */
const SILENCE_MS = 5000;
/** Frames that are buffered during a load; with more, the load starts over. */
const MAX_BUFFERED = 50_000;
const TICK_MS = 1000;
const FIRST_PAUSE_MS = 250;
const MAX_PAUSE_MS = 5000;

type Timer = ReturnType<typeof setTimeout>;

export class JobStream {
  private socket: SocketLike | null = null;
  /** The highest `seq` received. */
  private after = END;
  /** Frames received during a load; null when none is running. */
  private buffered: Frame[] | null = null;
  private loads = 0;
  private loaded = false;
  private failures = 0;
  private reconnecting: Timer | undefined;
  private reloading: Timer | undefined;
  private readonly ticker: Timer;
  private probing = false;
  private wasBehind = false;
  private stopped = false;
  private status: StreamStatus = { phase: "connecting", lastResponseAt: null };

  constructor(private readonly options: StreamOptions) {
    this.ticker = setInterval(() => this.tick(), TICK_MS);
  }

  start(): void {
    this.open();
  }

  stop(): void {
    this.stopped = true;
    clearTimeout(this.reconnecting);
    clearTimeout(this.reloading);
    clearInterval(this.ticker);
    this.drop();
  }

  /** Reconnects now instead of after the pause. */
  retryNow(): void {
    if (this.stopped || this.socket !== null) return;
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
      this.markResponse();
    };
    socket.onmessage = (event) => {
      if (this.socket === socket) this.receive(event.data);
    };
    socket.onclose = (event) => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (event.code === UNKNOWN_JOB) this.finish();
      else this.reconnectLater();
    };
  }

  private receive(data: unknown): void {
    const frames = parseFrames(data);
    if (frames === null) {
      // An unreadable frame cannot be skipped safely: request it again.
      this.reconnect();
      return;
    }
    this.markResponse();
    for (const frame of frames) if (frame.type === "reset") this.reset(frame.seq);
    const fresh = frames
      .filter((frame) => frame.seq > this.after && frame.type !== "reset")
      .sort((a, b) => a.seq - b.seq);
    const last = fresh.at(-1);
    if (last === undefined) return;
    this.after = last.seq;
    this.wasBehind = false;
    if (this.buffered === null) this.options.deliver(fresh);
    else this.buffer(fresh);
  }

  private buffer(frames: Frame[]): void {
    this.buffered?.push(...frames);
    if (this.buffered !== null && this.buffered.length > MAX_BUFFERED) {
      this.after = END;
      this.reconnect();
    }
  }

  private reset(seq: number): void {
    this.after = seq;
    this.buffered = [];
    this.loads += 1;
    void this.load(this.loads);
  }

  private async load(number: number): Promise<void> {
    clearTimeout(this.reloading);
    try {
      await this.options.reload();
    } catch (error) {
      if (this.stopped || number !== this.loads) return;
      if (isNotFound(error)) this.finish();
      else this.reloading = setTimeout(() => void this.load(number), this.pause());
      return;
    }
    // A later reset has started another load.
    if (this.stopped || number !== this.loads) return;
    const buffered = this.buffered ?? [];
    this.buffered = null;
    this.loaded = true;
    if (buffered.length > 0) this.options.deliver(buffered);
    this.markResponse();
  }

  private reconnect(): void {
    this.drop();
    this.reconnectLater();
  }

  private reconnectLater(): void {
    if (this.status.phase === "live") this.show("reconnecting");
    // Without a stream the page still shows the data from REST.
    if (!this.loaded && this.loads === 0) void this.load(0);
    this.reconnecting = setTimeout(() => this.open(), this.pause());
  }

  /** Exponential back-off with jitter, so that pages do not reconnect all at once after a restart. */
  private pause(): number {
    const random = this.options.random ?? Math.random;
    const pause = Math.min(MAX_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.failures);
    this.failures += 1;
    return pause * (0.5 + random() / 2);
  }

  /** Silence alone says nothing, since a paused job sends no frames. So probe the coordinator. */
  private tick(): void {
    if (this.silence() < SILENCE_MS) return;
    if (this.socket === null || this.buffered !== null) {
      if (this.status.lastResponseAt !== null || this.failures > 2) this.show("stale");
      return;
    }
    if (!this.loaded) {
      // Connected, but no reset came.
      this.markResponse();
      this.reconnect();
      return;
    }
    if (this.probing) return;
    this.probing = true;
    const probed = this.socket;
    // A coordinator that is frozen accepts the request and never answers.
    const patience = new AbortController();
    const timer = setTimeout(() => patience.abort(), SILENCE_MS);
    const timeout = new Promise<never>((_, reject) =>
      patience.signal.addEventListener("abort", reject),
    );
    Promise.race([this.options.probe(patience.signal), timeout])
      .then(
        (result) => this.onProbe(probed, result),
        () => this.onProbe(probed, "silent"),
      )
      .finally(() => clearTimeout(timer));
  }

  private onProbe(probed: SocketLike, result: Probe | "silent"): void {
    this.probing = false;
    if (this.stopped || this.socket !== probed || this.silence() < SILENCE_MS) return;
    if (result === "silent") {
      this.show("stale");
      this.reconnect();
      return;
    }
    this.markResponse();
    // A connection can die silently, as when a laptop sleeps. Reconnect only once: if the new one is
    // silent as well, there is nothing to send.
    if (result === "behind" && !this.wasBehind) {
      this.wasBehind = true;
      this.reconnect();
    }
  }

  private silence(): number {
    return Date.now() - (this.status.lastResponseAt ?? 0);
  }

  private markResponse(): void {
    this.status = { ...this.status, lastResponseAt: Date.now() };
    if (this.loaded && this.socket !== null) this.show("live");
  }

  private show(phase: Phase): void {
    // Of the same phase nothing is new: the page would render for each frame.
    if (this.stopped || this.status.phase === phase) return;
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

/** The frames of a message, which is one frame or a list; null if it is neither. */
function parseFrames(data: unknown): Frame[] | null {
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
