import type { ExperimentSpec } from "@/client";
import type { Experiment } from "@/shared/api/types";
import { metric } from "@/shared/format";

/** The spec of an experiment, which the coordinator returns with its defaults. */
export function specOf({ spec }: Pick<Experiment, "spec">): ExperimentSpec {
  return spec as unknown as ExperimentSpec;
}

/** Short names of the fields of a space: the last part of each, where no two are the same. */
export function fieldLabels(fields: readonly string[]): Record<string, string> {
  const last = (field: string) => field.slice(field.lastIndexOf(".") + 1);
  const isUnique = (label: string) => fields.filter((each) => last(each) === label).length === 1;
  return Object.fromEntries(
    fields.map((field) => [field, isUnique(last(field)) ? last(field) : field]),
  );
}

/** A value of a field: numbers are rounded, lists and objects are JSON. */
export function valueText(value: unknown): string {
  if (typeof value === "number") return metric(value);
  return typeof value === "string" ? value : JSON.stringify(value ?? null);
}
