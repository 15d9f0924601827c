import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  END,
  type Frame,
  JobStream,
  type Probe,
  type SocketLike,
  type StreamStatus,
} from "./job-stream";

class FakeSocket implements SocketLike {
  onopen: (() => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number }) => void) | null = null;
  closed = false;

  constructor(readonly url: string) {}

  open(): void {
    this.onopen?.();
  }

  send(...frames: object[]): void {
    for (const frame of frames) this.onmessage?.({ data: JSON.stringify(frame) });
  }

  break(code = 1006): void {
    this.onclose?.({ code });
  }

  close(): void {
    this.closed = true;
  }
}

const sockets: FakeSocket[] = [];
const delivered: Frame[] = [];
const statuses: StreamStatus[] = [];
let reload: () => Promise<void>;
let loads = 0;
let probe: (signal: AbortSignal) => Promise<Probe>;
let stream: JobStream;

function start(): void {
  stream = new JobStream({
    url: (after) => `stream?after=${after}`,
    reload: () => {
      loads += 1;
      return reload();
    },
    probe: (signal) => probe(signal),
    deliver: (frames) => delivered.push(...frames),
    onStatus: (status) => statuses.push(status),
    connect: (url) => {
      const socket = new FakeSocket(url);
      sockets.push(socket);
      return socket;
    },
    random: () => 1,
  });
  stream.start();
}

/** Let promises settle and timers run. */
const pass = (milliseconds = 0) => vi.advanceTimersByTimeAsync(milliseconds);
const socket = (): FakeSocket => sockets.at(-1) as FakeSocket;
const phase = () => statuses.at(-1)?.phase;
const seqs = () => delivered.map((frame) => frame.seq);
const point = (seq: number) => ({ seq, type: "metrics", rank: null, points: {} });

beforeEach(() => {
  vi.useFakeTimers();
  sockets.length = 0;
  delivered.length = 0;
  statuses.length = 0;
  reload = async () => undefined;
  loads = 0;
  probe = async () => "current";
});

afterEach(() => {
  stream.stop();
  vi.useRealTimers();
});

/** A page that has loaded what there was, up to sequence 10. */
async function live(): Promise<void> {
  start();
  socket().open();
  socket().send({ seq: 10, type: "reset" });
  await pass();
}

describe("start", () => {
  it("receives a reset, loads through REST, and follows from there", async () => {
    start();
    expect(socket().url).toBe(`stream?after=${END}`);
    socket().open();
    expect(statuses).toEqual([]);
    socket().send({ seq: 10, type: "reset" });
    expect(loads).toBe(1);
    await pass();
    expect(phase()).toBe("live");
    socket().send(point(11), point(12));
    expect(seqs()).toEqual([11, 12]);
    expect(sockets).toHaveLength(1);
  });

  it("buffers frames until the load is done", async () => {
    let loaded: () => void = () => undefined;
    reload = () => new Promise((resolve) => (loaded = resolve));
    start();
    socket().open();
    socket().send({ seq: 10, type: "reset" }, point(11), point(12));
    await pass();
    expect(seqs()).toEqual([]);
    loaded();
    await pass();
    expect(seqs()).toEqual([11, 12]);
  });

  it("keeps buffered frames when the connection breaks", async () => {
    let loaded: () => void = () => undefined;
    reload = () => new Promise((resolve) => (loaded = resolve));
    start();
    socket().open();
    socket().send({ seq: 10, type: "reset" }, point(11), point(12));
    socket().break();
    await pass(300);
    expect(socket().url).toBe("stream?after=12");
    socket().open();
    socket().send(point(13));
    loaded();
    await pass();
    expect(seqs()).toEqual([11, 12, 13]);
  });

  it("retries the load until the coordinator responds", async () => {
    reload = async () => {
      if (loads < 4) throw new Error("nothing answers");
    };
    start();
    socket().open();
    socket().send({ seq: 10, type: "reset" });
    await pass(10_000);
    expect(loads).toBe(4);
    expect(phase()).toBe("live");
  });

  it("shows data from REST when the stream is silent", async () => {
    start();
    socket().open();
    await pass(7000);
    expect(loads).toBe(1);
    expect(sockets.length).toBeGreaterThan(1);
  });

  it("shows data from REST without a stream", async () => {
    start();
    socket().break();
    await pass();
    expect(loads).toBe(1);
    expect(phase()).not.toBe("live");
  });
});

describe("following", () => {
  beforeEach(live);

  it("delivers several frames of one message in order", () => {
    socket().onmessage?.({ data: JSON.stringify([point(13), point(11), point(12)]) });
    expect(seqs()).toEqual([11, 12, 13]);
  });

  it("accepts gaps in `seq`: not every event is a frame", () => {
    socket().send(point(11), point(40));
    expect(seqs()).toEqual([11, 40]);
    expect(sockets).toHaveLength(1);
  });

  it("drops repeated and older frames", () => {
    socket().send(point(9), point(10), point(12), point(12), point(11), point(13));
    expect(seqs()).toEqual([12, 13]);
  });
});

describe("reconnecting", () => {
  beforeEach(live);

  it("resumes after the last frame", async () => {
    socket().send(point(11), point(12));
    socket().break();
    expect(phase()).toBe("reconnecting");
    await pass(300);
    expect(sockets).toHaveLength(2);
    expect(socket().url).toBe("stream?after=12");
    socket().open();
    expect(phase()).toBe("live");
    socket().send(point(12), point(13));
    expect(seqs()).toEqual([11, 12, 13]);
    expect(loads).toBe(1);
  });

  it("backs off after every failure, up to a limit", async () => {
    const pauses: number[] = [];
    for (let i = 0; i < 8; i++) {
      const before = sockets.length;
      const at = Date.now();
      socket().break();
      while (sockets.length === before) await pass(50);
      pauses.push(Date.now() - at);
    }
    expect(pauses.slice(0, 4)).toEqual([250, 500, 1000, 2000]);
    expect(Math.max(...pauses)).toBe(5000);
  });

  it("ignores frames of a closed socket", async () => {
    const old = socket();
    old.break();
    await pass(300);
    socket().open();
    old.send(point(99), { seq: 99, type: "reset" });
    old.break(4404);
    expect(delivered).toEqual([]);
    expect(loads).toBe(1);
    expect(phase()).toBe("live");
  });

  it("requests an unreadable message again", async () => {
    socket().send(point(11));
    socket().onmessage?.({ data: "{half of a fra" });
    expect(socket().closed).toBe(true);
    await pass(300);
    expect(socket().url).toBe("stream?after=11");
  });

  it("reconnects at once on retryNow", async () => {
    for (let i = 0; i < 6; i++) {
      socket().break();
      await pass(5000);
    }
    socket().break();
    const before = sockets.length;
    stream.retryNow();
    expect(sockets).toHaveLength(before + 1);
    await pass(10_000);
    expect(sockets).toHaveLength(before + 1);
  });
});

describe("a reset", () => {
  beforeEach(live);

  it("reloads everything and continues after it", async () => {
    socket().send(point(11), { seq: 60, type: "reset" }, point(61));
    await pass();
    expect(loads).toBe(2);
    expect(seqs()).toEqual([11, 61]);
    socket().break();
    await pass(300);
    expect(socket().url).toBe("stream?after=61");
  });

  it("uses the last of several, with one load", async () => {
    const waiting: (() => void)[] = [];
    reload = () => new Promise((resolve) => waiting.push(resolve));
    socket().send({ seq: 60, type: "reset" }, point(61), { seq: 80, type: "reset" }, point(81));
    for (const loaded of waiting.toReversed()) loaded();
    await pass();
    expect(seqs()).toEqual([81]);
  });

  it("may go back, as after restoring a backup of the coordinator", async () => {
    socket().send(point(50));
    socket().send({ seq: 20, type: "reset" });
    await pass();
    socket().send(point(21));
    expect(seqs()).toEqual([50, 21]);
  });
});

describe("staleness", () => {
  beforeEach(live);

  it("stays live while the coordinator responds to probes", async () => {
    await pass(60_000);
    expect(phase()).toBe("live");
    expect(sockets).toHaveLength(1);
  });

  it("says nothing new for frames while it is live", () => {
    const before = statuses.length;
    socket().send(point(11), point(12), point(13));
    expect(statuses).toHaveLength(before);
  });

  it("is stale without a response, and live again afterwards", async () => {
    const before = Date.now();
    probe = async () => {
      throw new Error("nothing answers");
    };
    await pass(7000);
    expect(phase()).toBe("stale");
    expect(statuses.at(-1)?.lastResponseAt).toBeLessThanOrEqual(before);
    await pass(1000);
    socket().open();
    expect(phase()).toBe("live");
  });

  it("is stale while the coordinator is frozen", async () => {
    probe = () => new Promise(() => undefined);
    await pass(9000);
    expect(phase()).toBe("live");
    await pass(3000);
    expect(phase()).toBe("stale");
  });

  it("aborts a probe without a response, and is live again after the next", async () => {
    const signals: AbortSignal[] = [];
    probe = (signal) => {
      signals.push(signal);
      return signals.length === 1 ? new Promise(() => undefined) : Promise.resolve("current");
    };
    await pass(10_500);
    expect(signals.map(({ aborted }) => aborted)).toEqual([true]);
    expect(phase()).toBe("stale");
    socket().open();
    await pass(12_000);
    expect(phase()).toBe("live");
    expect(signals.slice(1).some(({ aborted }) => aborted)).toBe(false);
  });

  it("leaves no timer after a response", async () => {
    const before = vi.getTimerCount();
    await pass(6000);
    expect(vi.getTimerCount()).toBe(before);
  });

  it("is stale when it can't reconnect for some seconds", async () => {
    socket().break();
    for (let i = 0; i < 12; i++) {
      await pass(1000);
      if (sockets.length > 1) socket().break();
    }
    expect(phase()).toBe("stale");
  });

  it("reconnects once when the connection died silently", async () => {
    probe = async () => "behind";
    await pass(8000);
    expect(sockets).toHaveLength(2);
    socket().open();
    await pass(30_000);
    expect(sockets).toHaveLength(2);
  });
});

describe("an unknown job", () => {
  it("ends the stream when the socket says so", async () => {
    await live();
    socket().break(4404);
    expect(phase()).toBe("gone");
    await pass(60_000);
    expect(sockets).toHaveLength(1);
  });

  it("ends the stream when REST says so", async () => {
    reload = async () => {
      throw Object.assign(new Error("there is no such job"), { status: 404 });
    };
    await live();
    expect(phase()).toBe("gone");
    expect(socket().closed).toBe(true);
  });
});

it("reports nothing after a stop", async () => {
  await live();
  stream.stop();
  const before = statuses.length;
  expect(socket().closed).toBe(true);
  await pass(60_000);
  expect(statuses).toHaveLength(before);
  expect(sockets).toHaveLength(1);
});
