import { describe, expect, it } from "vitest";
import type { DeviceHistory } from "@/shared/api/types";
import { seriesOf } from "@/shared/curves/data/curve";
import { devicePanels } from "./panels";

const history = (index: number, power: number | null): DeviceHistory => ({
  index,
  points: [0, 30].map((second) => ({
    time: new Date(second * 1000).toISOString(),
    utilization: 10 * index + second,
    memory_used: null,
    temperature: null,
    power,
  })),
});

describe("devicePanels", () => {
  it("has a chart per reported quantity and a curve per device", () => {
    const panels = devicePanels([
      { label: "a", history: history(0, null) },
      { label: "b", history: history(1, 300) },
    ]);
    expect(panels.map(({ title, curves }) => [title, curves.map((each) => each.label)])).toEqual([
      ["Utilization", ["a", "b"]],
      ["Power", ["b"]],
    ]);
    const [, second] = panels[0]?.curves ?? [];
    expect(second && seriesOf(second)?.values).toEqual([10, 40]);
    expect(second && seriesOf(second)?.times).toEqual([0, 30]);
  });

  it("is nothing without readings", () => {
    expect(devicePanels([{ label: "a", history: { index: 0, points: [] } }])).toEqual([]);
  });
});
