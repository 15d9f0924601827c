import type { ExperimentSpec } from "@/client";
import type { Experiment, ExperimentPlan } from "@/shared/api/types";
import { metric, plural } from "@/shared/format";

/** Most trials that the check of an experiment names. */
const SHOWN_TRIALS = 12;

/** A spec with what a benchmark or scaling study need not give. */
type StoredSpec = ExperimentSpec & Required<Pick<ExperimentSpec, "method" | "objective">>;

/** The spec of an experiment, which the coordinator returns with its defaults. */
export function specOf({ spec }: Pick<Experiment, "spec">): StoredSpec {
  return spec as unknown as StoredSpec;
}

/** "sweep, grid", "benchmark": only a sweep has a method to choose. */
export function kindText({ kind, spec }: Pick<Experiment, "kind" | "spec">): string {
  return kind === "sweep" ? `${kind}, ${specOf({ spec }).method}` : kind;
}

/** Short names of the fields of a space: the last part of each, where no two are the same. */
export function fieldLabels(fields: readonly string[]): Record<string, string> {
  const last = (field: string) => field.slice(field.lastIndexOf(".") + 1);
  const isUnique = (label: string) => fields.filter((each) => last(each) === label).length === 1;
  return Object.fromEntries(
    fields.map((field) => [field, isUnique(last(field)) ? last(field) : field]),
  );
}

/** What a checked experiment would run, with its first combinations. */
export function planText({ configurations, runs, hint }: ExperimentPlan): string {
  const note = hint ? ` ${hint}` : "";
  if (configurations.length === 0)
    return `Valid. ${plural(runs, "run")}; values are chosen from the results so far.${note}`;
  const labels = fieldLabels(Object.keys(configurations[0]?.values ?? {}));
  const shown = configurations.slice(0, SHOWN_TRIALS).map(({ values, problem }) => {
    const named = Object.entries(values)
      .map(([field, value]) => `${labels[field] ?? field} ${valueText(value)}`)
      .join(", ");
    return problem ? `${named} (cannot run: ${problem})` : named;
  });
  const trials = plural(configurations.length, "trial");
  const impossible = configurations.filter(({ problem }) => problem).length;
  const cells = trials + (impossible > 0 ? `, of which ${impossible} cannot run` : "");
  const size = runs === configurations.length ? cells : `${cells}, ${plural(runs, "run")}`;
  const rest = configurations.length > shown.length ? "; …" : ".";
  return `Valid. ${size}: ${shown.join("; ")}${rest}${note}`;
}

/** A value of a field: numbers are rounded, lists and objects are JSON. */
export function valueText(value: unknown): string {
  if (typeof value === "number") return metric(value);
  return typeof value === "string" ? value : JSON.stringify(value ?? null);
}
