import type { Experiment } from "@/shared/api/types";
import type { ScatterAxis } from "@/shared/curves/scatter/options";
import { toNumber, valueAt } from "@/shared/format";
import { fieldLabels, specOf, valueText } from "../../spec";
import { type Configuration, meanOf } from "../trials";

/** What trials are drawn over: their number, when they ended, a field of the space or a metric. */
export interface TrialAxis {
  /** `number`, `time`, a field, or a metric after `metric:`. */
  id: string;
  scale: ScatterAxis;
  /** Of a configuration; null where it has none. */
  value: (configuration: Configuration) => unknown;
}

/** Positive numbers that span this factor are shown on a logarithmic axis. */
const WIDE = 100;

export const NUMBERS: TrialAxis = {
  id: "number",
  scale: { kind: "whole", label: "trial" },
  value: ({ number }) => number,
};

/** Seconds between the experiment's creation and the end of a trial. */
export function timeAxis({ created_at }: Pick<Experiment, "created_at">): TrialAxis {
  const origin = Date.parse(created_at) / 1000;
  return {
    id: "time",
    scale: { kind: "elapsed", label: "time" },
    value: ({ endedAt }) => (endedAt === null ? null : endedAt - origin),
  };
}

/** An axis for each field of the space, in the order of the spec. */
export function fieldAxes(
  experiment: Experiment,
  configurations: readonly Configuration[],
): TrialAxis[] {
  const { space } = specOf(experiment);
  const labels = fieldLabels(Object.keys(space));
  return Object.entries(space).map(([field, dimension]) => {
    const value = ({ values }: Configuration) => values[field];
    const scale = scaleOf(labels[field] ?? field, configurations.map(value), dimension);
    return { id: field, scale, value };
  });
}

/** The axis of the objective, or of the last value of another metric. */
export function metricAxis(
  name: string,
  objective: string,
  configurations: readonly Configuration[],
): TrialAxis {
  const value = ({ mean, runs }: Configuration) =>
    name === objective ? mean : meanOf(runs.map(({ metrics }) => toNumber(valueAt(metrics, name))));
  const known = configurations.map(value).filter((each) => each !== null);
  return { id: `metric:${name}`, scale: numeric(name, known), value };
}

function scaleOf(label: string, values: readonly unknown[], dimension: unknown): ScatterAxis {
  if (!values.every((value) => typeof value === "number")) {
    const listed = Array.isArray(dimension) ? dimension : values;
    return { kind: "category", label, names: [...new Set(listed.map(valueText))] };
  }
  // A list says nothing about the distances of its values.
  if (Array.isArray(dimension)) return { ...numeric(label, values), tried: [...new Set(values)] };
  const isLog = typeof dimension === "object" && dimension !== null && "log" in dimension;
  return { kind: isLog ? "log" : "linear", label };
}

function numeric(label: string, values: readonly number[]) {
  const least = Math.min(...values);
  const isWide = least > 0 && Math.max(...values) / least >= WIDE;
  return { kind: isWide ? "log" : "linear", label } as const;
}

/** The position of a configuration on an axis, in its units; null where it has none. */
export function positionOn({ scale, value }: TrialAxis, configuration: Configuration) {
  const found = value(configuration);
  if (scale.kind === "category") {
    const at = scale.names.indexOf(valueText(found));
    return at < 0 ? null : at;
  }
  return typeof found === "number" && Number.isFinite(found) ? found : null;
}

/** The objective, then all other metrics. */
export function metricNames(objective: string, configurations: readonly Configuration[]): string[] {
  const found = new Set(
    configurations.flatMap(({ runs }) => runs.flatMap(({ metrics }) => Object.keys(metrics))),
  );
  found.delete(objective);
  return [objective, ...[...found].sort()];
}
