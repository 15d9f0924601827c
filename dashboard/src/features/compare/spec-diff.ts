export interface Difference {
  /** Dotted, as in `training.learning_rate`. */
  key: string;
  /** One per spec, in order; null where a spec does not have the key. */
  values: (string | null)[];
}

/** The keys in which specs differ, in order, without the job's name. */
export function specDifferences(specs: readonly Record<string, unknown>[]): Difference[] {
  const flat = specs.map((spec) => flattened(spec));
  const keys = new Set(flat.flatMap((each) => [...each.keys()]));
  keys.delete("name");
  return [...keys]
    .sort()
    .map((key) => ({ key, values: flat.map((each) => each.get(key) ?? null) }))
    .filter(({ values }) => new Set(values).size > 1);
}

/** Leaves by their dotted keys. Lists are leaves; null is the same as leaving the key out. */
function flattened(
  value: Record<string, unknown>,
  prefix = "",
  into = new Map<string, string>(),
): Map<string, string> {
  for (const [key, each] of Object.entries(value)) {
    if (each === null || each === undefined) continue;
    const path = prefix === "" ? key : `${prefix}.${key}`;
    if (typeof each === "object" && !Array.isArray(each)) {
      flattened(each as Record<string, unknown>, path, into);
    } else into.set(path, typeof each === "string" ? each : JSON.stringify(each));
  }
  return into;
}
