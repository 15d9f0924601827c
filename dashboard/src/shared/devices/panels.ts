import type { DeviceHistory } from "@/shared/api/types";
import type { Curve } from "@/shared/curves/curve";
import { look } from "@/shared/curves/palette";
import { CurveStore } from "@/shared/curves/store";
import { bytes, celsius, percent, watts } from "@/shared/format";

/** A device on the charts: what it did, and what it is called there. */
export interface Shown {
  label: string;
  history: DeviceHistory;
}

export interface DevicePanel {
  title: string;
  format: (value: number | null) => string;
  binary: boolean;
  /** Values that are always in sight. */
  limits: readonly number[];
  curves: Curve[];
}

const METRICS = [
  ["utilization", "Utilisation", percent, [0, 100]],
  ["memory_used", "Device memory", bytes, [0]],
  ["temperature", "Temperature", celsius, [20]],
  ["power", "Power", watts, [0]],
] as const;

/** One chart for each thing that any of the devices tells; a curve a device. */
export function devicePanels(devices: readonly Shown[], origin = 0): DevicePanel[] {
  const store = new CurveStore();
  const curves = (metric: string): Curve[] =>
    devices.flatMap(({ label, history }, place) => {
      const told = history.points.filter((point) => value(point, metric) !== null);
      if (told.length === 0) return [];
      store.append(
        metric,
        place,
        told.map((point, i) => ({
          step: i + 1,
          time: Date.parse(point.time) / 1000,
          value: value(point, metric),
        })),
      );
      return [{ store, name: metric, rank: place, label, origin, exact: true, ...look(place) }];
    });
  return METRICS.map(([metric, title, format, limits]) => ({
    title,
    format,
    binary: metric === "memory_used",
    limits,
    curves: curves(metric),
  })).filter((panel) => panel.curves.length > 0);
}

function value(point: DeviceHistory["points"][number], metric: string): number | null {
  return point[metric as "power"];
}
