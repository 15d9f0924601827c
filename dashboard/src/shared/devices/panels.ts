import type { DeviceHistory } from "@/shared/api/types";
import { look } from "@/shared/curves/chart/palette";
import type { Curve } from "@/shared/curves/data/curve";
import { CurveStore } from "@/shared/curves/data/store";
import { bytes, celsius, percent, watts } from "@/shared/format";

/** The readings of a device, and its label on the charts. */
export interface DeviceCurves {
  label: string;
  history: DeviceHistory;
}

interface DevicePanel {
  title: string;
  format: (value: number | null) => string;
  binary: boolean;
  /** Values that the vertical axis always includes. */
  limits: readonly number[];
  curves: Curve[];
}

const METRICS = [
  ["utilization", "Utilization", percent, [0, 100]],
  ["memory_used", "Device memory", bytes, [0]],
  ["temperature", "Temperature", celsius, [20]],
  ["power", "Power", watts, [0]],
] as const;

/** One chart per quantity that a device reports, with one curve per device. */
export function devicePanels(devices: readonly DeviceCurves[], origin = 0): DevicePanel[] {
  const store = new CurveStore();
  const curves = (metric: string): Curve[] =>
    devices.flatMap(({ label, history }, index) => {
      const readings = history.points.filter((point) => value(point, metric) !== null);
      if (readings.length === 0) return [];
      store.append(
        metric,
        index,
        readings.map((point, i) => ({
          step: i + 1,
          time: Date.parse(point.time) / 1000,
          value: value(point, metric),
        })),
      );
      return [{ store, name: metric, rank: index, label, origin, exact: true, ...look(index) }];
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
