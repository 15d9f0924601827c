// @vitest-environment jsdom
import { QueryClient } from "@tanstack/react-query";
import { expect, it } from "vitest";
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

it("nothing is read for a metric without a value", () => {
  expect(recentMetricOptions({ ...job, main_metric: { ...main, value: null } }).enabled).toBe(
    false,
  );
  expect(recentMetricOptions({ ...job, main_metric: null }).enabled).toBe(false);
});
