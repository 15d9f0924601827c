import { beforeEach, describe, expect, it, vi } from "vitest";
import { type AlertNotification, follow } from "./notifications";

class Socket {
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: (() => void) | null = null;
  close = vi.fn();
  constructor(readonly url: string) {}
  send(message: unknown): void {
    this.onmessage?.({ data: JSON.stringify(message) });
  }
}

const message = (sequence: number) => ({ sequence, title: "Job failed", text: "x", path: "/jobs" });

describe("notifications", () => {
  let sockets: Socket[];
  let shown: number[];
  const start = () =>
    follow(
      ({ sequence }: AlertNotification) => shown.push(sequence),
      (url) => {
        const made = new Socket(url);
        sockets.push(made);
        return made as unknown as WebSocket;
      },
    );

  beforeEach(() => {
    localStorage.clear();
    sockets = [];
    shown = [];
    vi.useFakeTimers();
    return () => vi.useRealTimers();
  });

  it("begin with those from now on", () => {
    const stop = start();
    expect(sockets[0]?.url).toMatch(/\/api\/v1\/alerts\/stream$/);
    sockets[0]?.send({ type: "ready", sequence: 7 });
    sockets[0]?.send(message(8));
    expect(shown).toEqual([8]);
    stop();
    expect(sockets[0]?.close).toHaveBeenCalled();
  });

  it("continue after the last one that this browser has seen", () => {
    const stop = start();
    sockets[0]?.send({ type: "ready", sequence: 7 });
    sockets[0]?.onclose?.();
    vi.advanceTimersByTime(1000);
    expect(sockets[1]?.url).toMatch(/\?after=7$/);
    sockets[1]?.send(message(8));
    sockets[1]?.send(message(8));
    expect(shown).toEqual([8]);
    stop();
    sockets[1]?.onclose?.();
    vi.advanceTimersByTime(60_000);
    expect(sockets).toHaveLength(2);
  });

  it("begin again where the coordinator's database is another one", () => {
    localStorage.setItem("trainhall-notification", "99");
    const stop = start();
    sockets[0]?.send({ type: "ready", sequence: 2 });
    sockets[0]?.send(message(3));
    expect(shown).toEqual([3]);
    stop();
  });
});
