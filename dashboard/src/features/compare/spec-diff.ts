export interface Difference {
  /** Dotted, as in `training.learning_rate`. */
  key: string;
  /** One per spec, in order; null where a spec does not have the key. */
  values: (string | ListElement[] | null)[];
}

/** An element of a list, as JSON. */
interface ListElement {
  text: string;
  /** Not all of the lists have it. */
  differs: boolean;
}

type Leaf = string | string[];

/** The keys in which specs differ, in order, without the job's name. */
export function specDifferences(specs: readonly Record<string, unknown>[]): Difference[] {
  const flat = specs.map((spec) => flattened(spec));
  const keys = new Set(flat.flatMap((each) => [...each.keys()]));
  keys.delete("name");
  return [...keys]
    .sort()
    .map((key) => ({ key, values: flat.map((each) => each.get(key) ?? null) }))
    .filter(({ values }) => new Set(values.map((value) => JSON.stringify(value))).size > 1)
    .map(({ key, values }) => ({ key, values: withMarks(values) }));
}

/** The values with the elements marked in which their lists differ. */
function withMarks(values: readonly (Leaf | null)[]): Difference["values"] {
  const lists = values.filter((value) => Array.isArray(value));
  const counts = lists.map(countsOf);
  const common = (text: string) => Math.min(...counts.map((each) => each.get(text) ?? 0));
  const marks = values.map((value) => (Array.isArray(value) ? surplus(value, common) : null));
  // In another order, places differ instead.
  const isReordered = !marks.some((each) => each?.includes(true));
  return values.map((value, i) =>
    Array.isArray(value)
      ? value.map((text, at) => ({
          text,
          differs: isReordered
            ? lists.some((list) => list[at] !== text)
            : (marks[i]?.[at] ?? false),
        }))
      : value,
  );
}

/** Which elements come more often than in every list. */
function surplus(list: readonly string[], common: (text: string) => number): boolean[] {
  const seen = new Map<string, number>();
  return list.map((text) => {
    const number = (seen.get(text) ?? 0) + 1;
    seen.set(text, number);
    return number > common(text);
  });
}

function countsOf(list: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const text of list) counts.set(text, (counts.get(text) ?? 0) + 1);
  return counts;
}

/** Leaves by their dotted keys. Lists are leaves; null is the same as leaving the key out. */
function flattened(
  value: Record<string, unknown>,
  prefix = "",
  into = new Map<string, Leaf>(),
): Map<string, Leaf> {
  for (const [key, each] of Object.entries(value)) {
    if (each === null || each === undefined) continue;
    const path = prefix === "" ? key : `${prefix}.${key}`;
    if (Array.isArray(each)) {
      into.set(
        path,
        each.map((element) => JSON.stringify(element)),
      );
    } else if (typeof each === "object") {
      flattened(each as Record<string, unknown>, path, into);
    } else into.set(path, typeof each === "string" ? each : JSON.stringify(each));
  }
  return into;
}
