// @vitest-environment jsdom
import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { expect, it, vi } from "vitest";
import { fakeApi } from "@/test/fake-api";
import { recentMetricOptions } from "./recent-metric";

const main = { name: "val/f1", value: 0.5, goal: null };
const job = { id: "j1", main_metric: main, running_since: null };

it("a sparkline is of the main metric alone, of the whole job", async () => {
  const series = (rank: number | null, ...values: (number | string)[]) => ({
    name: "val/f1",
    rank,
    points: values.map((value, i) => ({ step: i, time: "2026-01-01T00:00:00Z", value })),
  });
  const asked = fakeApi({
    "GET /metrics/jobs/j1": { series: [series(0, 9, 9), series(null, 0.1, "NaN", 0.5)] },
  });
  const values = await new QueryClient().fetchQuery(recentMetricOptions(job));
  expect(values).toEqual([0.1, Number.NaN, 0.5]);
  expect(new URL(asked[0]?.url ?? "").searchParams.getAll("names")).toEqual(["val/f1"]);
});

it("the former values stay for the same metric alone", async () => {
  const point = { step: 1, time: "2026-01-01T00:00:00Z", value: 0.5 };
  fakeApi({
    "GET /metrics/jobs/j1": { series: [{ name: "val/f1", rank: null, points: [point] }] },
  });
  const client = new QueryClient();
  const running = { ...job, running_since: "2026-01-01T00:00:00Z" };
  const observer = new QueryObserver(client, recentMetricOptions(running));
  const unsubscribe = observer.subscribe(() => undefined);
  await vi.waitFor(() => expect(observer.getCurrentResult().data).toEqual([0.5]));
  observer.setOptions(recentMetricOptions(job));
  expect(observer.getCurrentResult().data).toEqual([0.5]);
  observer.setOptions(recentMetricOptions({ ...job, main_metric: { ...main, name: "loss" } }));
  expect(observer.getCurrentResult().data).toBeUndefined();
  unsubscribe();
});

it("nothing is read for a metric without a value", () => {
  expect(recentMetricOptions({ ...job, main_metric: { ...main, value: null } }).enabled).toBe(
    false,
  );
  expect(recentMetricOptions({ ...job, main_metric: null }).enabled).toBe(false);
});
