import { describe, expect, it } from "vitest";
import type { ScalingCurve, ScalingPoint } from "@/shared/api/types";
import { curveName, doublings, facts, kindOf, pointColumns } from "./scaling-points";

const MEASURED: ScalingPoint = {
  workers: 4,
  trial: 3,
  is_predicted: false,
  shares_cores: false,
  batch_size: 1024,
  speed: 3456.7,
  speedup: 3.456,
  speedup_interval: [3.2, 3.7],
  efficiency: 0.864,
  compute_seconds: 0.25,
  data_seconds: 0,
  communication_seconds: null,
};
const PREDICTED: ScalingPoint = {
  ...MEASURED,
  workers: 1024,
  trial: null,
  is_predicted: true,
  speedup_interval: null,
};
const CURVE: ScalingCurve = {
  scaling: "weak",
  values: { "parallelism.strategy": "ddp" },
  points: [MEASURED, PREDICTED],
  serial_share: { share: 0.05, interval: [0.04, 0.06], fitted_on: [1, 2, 4] },
  worthwhile: { workers: 64, is_predicted: true, reason: "at 128 efficiency is 45 %" },
  model: { fitted_on: [1, 2], validated_on: 4, error: -0.021 },
  note: "",
};

function texts(point: ScalingPoint): Record<string, string> {
  const columns = pointColumns("samples_per_second");
  return Object.fromEntries(
    columns.map(({ title, text, note }) => [title, `${text(point)} ${note?.(point) ?? ""}`.trim()]),
  );
}

describe("scaling points", () => {
  it("have a column each, with the interval of a measured speed-up", () => {
    expect(texts(MEASURED)).toMatchObject({
      workers: "4",
      point: "measured",
      "speed-up": "3.46 × 3.2 to 3.7",
      efficiency: "86 %",
      compute: "250 ms",
      "comm.": "—",
    });
    expect(texts(PREDICTED)).toMatchObject({ workers: "1,024", "speed-up": "3.46 ×" });
    expect(kindOf(PREDICTED)).toBe("predicted");
    expect(kindOf({ ...MEASURED, shares_cores: true })).toBe("shared");
  });

  it("have a curve with a name and what is fitted to it", () => {
    expect(curveName(CURVE, ["resources.workers", "parallelism.strategy"])).toBe(
      "Weak scaling, strategy ddp",
    );
    expect(facts(CURVE)).toEqual([
      "serial share 5 % (4 % to 6 %)",
      "more workers pay up to 64: at 128 efficiency is 45 % (predicted)",
      "model fitted on 1, 2 workers, error −2.1 % at 4",
    ]);
    const none = { workers: 2, is_predicted: false, reason: "at 4 twice as many are slower" };
    expect(facts({ ...CURVE, points: [{ ...MEASURED, workers: 2 }], worthwhile: none })[1]).toBe(
      "no more than 2 workers pay: at 4 twice as many are slower (measured)",
    );
    const unfitted = { serial_share: null, worthwhile: null, model: null, note: "too few" };
    expect(facts({ ...CURVE, ...unfitted })).toEqual(["nothing is predicted: too few"]);
  });

  it("have an axis that doubles", () => {
    expect(doublings(1, 8, 8)).toEqual([1, 2, 4, 8]);
    expect(doublings(0.6, 4096, 7)).toEqual([1, 4, 16, 64, 256, 1024, 4096]);
    expect(doublings(3, 3, 8)).toEqual([]);
  });
});
