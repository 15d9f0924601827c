// @vitest-environment jsdom
import { expect, it } from "vitest";
import { fakeApi, json } from "@/test/fake-api";
import { allMetrics } from "./save-metrics";

it("saves every stored point of the job's series, without those of single ranks", async () => {
  const steps = Array.from({ length: 5000 }, (_, i) => i + 1);
  const points = steps.map((step) => {
    const time = new Date(step * 1000).toISOString();
    return { step, time, value: step / 2, min: step / 2, max: step / 2 };
  });
  fakeApi({
    "GET /metrics/jobs/3f2a9c51d07b": (request: Request) => {
      const [name] = new URL(request.url).searchParams.getAll("names");
      return json({
        series: [
          { name, rank: 0, points: [{ step: 1, time: "2026-01-01T00:00:00Z", value: -1 }] },
          { name, rank: null, points },
        ],
      });
    },
  });
  const metrics = {
    compression_seconds: 1,
    communication_hidden_seconds: 1,
    loss: 1,
    "my metric": 2,
    slowest_rank_ratio: 1.5,
  };
  const text = await allMetrics({ id: "3f2a9c51d07b", metrics });
  const rows = text.trimEnd().split("\n");
  expect(rows[0]).toBe(
    "step,loss,slowest_rank_ratio,my metric,communication_hidden_seconds,compression_seconds",
  );
  expect(rows[1]).toBe("1,0.5,0.5,0.5,0.5,0.5");
  expect(rows.at(-1)).toBe("5000,2500,2500,2500,2500,2500");
  expect(rows).toHaveLength(5001);
});
