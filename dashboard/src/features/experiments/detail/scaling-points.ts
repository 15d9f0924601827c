import type { ScalingCurve, ScalingPoint } from "@/shared/api/types";
import { count, duration, NOTHING, plural, rate, share } from "@/shared/format";
import { fieldLabels, valueText } from "../spec";
import { interval, three } from "./benchmark-rows";

/** A column of the table of a scaling curve. */
export interface PointColumn {
  id: string;
  title: string;
  text: (point: ScalingPoint) => string;
  /** A second line. */
  note?: (point: ScalingPoint) => string;
}

/** How a number of workers is known, which decides its look. */
export type PointKind = "measured" | "predicted" | "shared";

export const KIND_LABELS: Record<PointKind, string> = {
  measured: "measured",
  predicted: "predicted",
  shared: "measured, shared cores",
};

export function kindOf({ is_predicted: isPredicted, shares_cores: sharesCores }: ScalingPoint) {
  return isPredicted ? "predicted" : sharesCores ? "shared" : "measured";
}

/** The name of a curve, as "Strong scaling, strategy ddp". */
export function curveName({ scaling, values }: ScalingCurve, fields: readonly string[]): string {
  const labels = fieldLabels(fields);
  const others = Object.entries(values).map(
    ([field, value]) => `${labels[field] ?? field} ${valueText(value)}`,
  );
  return [`${scaling === "weak" ? "Weak" : "Strong"} scaling`, ...others].join(", ");
}

export function pointColumns(metric: string): PointColumn[] {
  return [
    { id: "workers", title: "workers", text: ({ workers }) => count(workers) },
    { id: "point", title: "point", text: (point) => KIND_LABELS[kindOf(point)] },
    { id: "batch", title: "batch", text: ({ batch_size: size }) => count(size) },
    {
      id: "speed",
      title: metric === "samples_per_second" ? "samples/s" : metric,
      text: ({ speed }) => rate(speed),
    },
    {
      id: "speedup",
      title: "speed-up",
      text: ({ speedup }) => `${three(speedup)} ×`,
      note: ({ speedup_interval: ends }) => interval(ends, three),
    },
    { id: "efficiency", title: "efficiency", text: ({ efficiency }) => share(efficiency) },
    part("compute_seconds", "compute"),
    part("data_seconds", "data"),
    part("communication_seconds", "comm."),
  ];
}

/** What is fitted to a curve, as short texts. */
export function facts({
  points,
  serial_share: serial,
  worthwhile,
  model,
  note,
}: ScalingCurve): string[] {
  const found: string[] = [];
  if (serial !== null && serial.share >= 1) found.push("more workers are not faster");
  else if (serial !== null) {
    const ends = interval(serial.interval, (end) => share(end));
    found.push(`serial share ${share(serial.share)}${ends === "" ? "" : ` (${ends})`}`);
  }
  if (worthwhile !== null) {
    const kind = worthwhile.is_predicted ? "predicted" : "measured";
    const end = worthwhile.reason === "" ? "no end found" : worthwhile.reason;
    const fewest = points[0]?.workers ?? 1;
    const pays =
      worthwhile.workers > fewest
        ? `more workers pay up to ${count(worthwhile.workers)}`
        : `no more than ${plural(fewest, "worker")} ${fewest === 1 ? "pays" : "pay"}`;
    found.push(`${pays}: ${end} (${kind})`);
  }
  if (model !== null) {
    const error = `${model.error < 0 ? "−" : "+"}${(100 * Math.abs(model.error)).toFixed(1)} %`;
    found.push(
      `model fitted on ${model.fitted_on.join(", ")} workers, ` +
        `error ${error} at ${model.validated_on}`,
    );
  }
  if (note !== "") found.push(`nothing is predicted: ${note}`);
  return found;
}

/** Powers of two from low to high, or every second of them, and so on. */
export function doublings(low: number, high: number, most: number): number[] {
  const first = Math.ceil(Math.log2(low));
  const last = Math.floor(Math.log2(high));
  const stride = Math.max(1, Math.ceil((last - first + 1) / most));
  const length = Math.max(0, Math.floor((last - first) / stride) + 1);
  return Array.from({ length }, (_, i) => 2 ** (first + i * stride));
}

function part(
  id: "compute_seconds" | "data_seconds" | "communication_seconds",
  title: string,
): PointColumn {
  return { id, title, text: (point) => (point[id] === null ? NOTHING : duration(point[id])) };
}
