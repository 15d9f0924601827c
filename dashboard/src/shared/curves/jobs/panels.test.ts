import { expect, it } from "vitest";
import { CurveStore } from "@/shared/curves/data/store";
import { type Compared, panelsOf } from "./panels";

it("jobs that differ in their seeds are one curve with a spread, unless the axis has no order", () => {
  const compared = (label: string, slot: number, config: string): Compared => {
    const store = new CurveStore();
    const samples = [3, 1, 2].map((value, i) => ({ step: i + 1, time: i, value }));
    store.append("loss", null, samples);
    return { label, slot, config, mainMetric: undefined, all: store, shown: store, origin: 0 };
  };
  const jobs = [compared("one", 0, "a"), compared("other", 1, "b"), compared("two", 2, "a")];
  const labels = (...how: ["step" | "metrics.loss", "range"?]) =>
    panelsOf(jobs, ...how).flatMap(({ curves }) => curves.map(({ label }) => label));
  expect(labels("step")).toEqual(["one", "two", "other"]);
  expect(labels("step", "range")).toEqual(["one, 2 seeds", "other"]);
  expect(labels("metrics.loss", "range")).toEqual(["one", "two", "other"]);
});
