// @vitest-environment jsdom
import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { fakeApi, job, problem } from "@/test/fake-api";
import { JobLive } from "./job-live";
import type { SocketLike } from "./job-stream";

const sockets: SocketLike[] = [];

beforeEach(() => {
  vi.useFakeTimers();
  sockets.length = 0;
  vi.stubGlobal(
    "WebSocket",
    class {
      close(): void {}
      constructor() {
        sockets.push(this as unknown as SocketLike);
      }
    },
  );
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

it("recovers after a probe that never got a response", async () => {
  let probes = 0;
  let frozen = false;
  fakeApi({
    "GET /training/jobs/j1": () => {
      if (!frozen) return job();
      probes += 1;
      return probes === 1 ? new Promise(() => undefined) : job();
    },
    "GET /training/jobs/j1/events": { items: [], next_cursor: null },
    "GET /metrics/jobs/j1": { series: [] },
  });
  const live = new JobLive("j1", new QueryClient());
  live.start();
  sockets[0]?.onopen?.();
  sockets[0]?.onmessage?.({ data: JSON.stringify({ seq: 1, type: "reset" }) });
  await vi.advanceTimersByTimeAsync(1000);
  expect(live.status.value.phase).toBe("live");
  frozen = true;
  await vi.advanceTimersByTimeAsync(9_500);
  expect(live.status.value.phase).toBe("stale");
  expect(sockets).toHaveLength(2);
  sockets[1]?.onopen?.();
  await vi.advanceTimersByTimeAsync(12_000);
  expect(live.status.value.phase).toBe("live");
  expect(probes).toBeGreaterThan(1);
  live.stop();
});

it("reads a window again once the connection is back", async () => {
  let away = false;
  fakeApi({
    "GET /training/jobs/j1": job(),
    "GET /training/jobs/j1/events": { items: [], next_cursor: null },
    "GET /metrics/jobs/j1": () => (away ? problem(503, "Away", "not ready") : { series: [] }),
  });
  const live = new JobLive("j1", new QueryClient());
  live.start();
  sockets[0]?.onopen?.();
  sockets[0]?.onmessage?.({ data: JSON.stringify({ seq: 1, type: "reset" }) });
  await vi.advanceTimersByTimeAsync(1000);
  away = true;
  live.zoom({ from: 10, to: 20 }, "step");
  await vi.advanceTimersByTimeAsync(1000);
  expect(live.window.value?.ready).toBe(false);
  away = false;
  sockets[0]?.onclose?.({ code: 1006 });
  await vi.advanceTimersByTimeAsync(1000);
  sockets[1]?.onopen?.();
  await vi.advanceTimersByTimeAsync(1000);
  expect(live.window.value).toMatchObject({ first: 10, last: 20, ready: true });
  live.stop();
});
