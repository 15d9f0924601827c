import { type Document, isMap, parse, parseDocument, YAMLMap } from "yaml";

export const FORMS = ["values", "range", "log"] as const;
/** A list of values; all numbers, or every step, between two; all on a logarithmic scale. */
export type Form = (typeof FORMS)[number];

/** The values of one field of the job, as they are typed. */
export interface DimensionFields {
  /** Tells rows apart whose fields are being typed. */
  id: string;
  field: string;
  form: Form;
  /** "0.001, 0.01". */
  values: string;
  low: string;
  high: string;
  /** Of a range; empty for none. */
  step: string;
}

/** What the form of a sweep shows; "" where the document leaves a key out. */
export interface SweepFields {
  name: string;
  method: string;
  metric: string;
  goal: string;
  trials: string;
  parallel: string;
  repeats: string;
  space: DimensionFields[];
  /** Steps of the job; not changed here. */
  steps: string;
  /** Null: all runs take all steps. */
  asha: { min: string; max: string; factor: string } | null;
}

export const NEW_DIMENSION: Omit<DimensionFields, "id"> = {
  field: "",
  form: "values",
  values: "",
  low: "",
  high: "",
  step: "",
};

/** The fields of a sweep in YAML; null for another kind, and for what is no YAML. */
export function sweepFields(text: string): SweepFields | null {
  const document = parsed(text);
  if (document.errors.length > 0 || !isMap(document.contents)) return null;
  try {
    return fieldsOf(document);
  } catch {
    return null; // an alias of nothing, such as `*.py`
  }
}

/** The YAML with these fields. What they leave as it was, and comments, stay. */
export function withFields(text: string, fields: SweepFields): string {
  const before = sweepFields(text);
  if (before === null) return text;
  const document = parsed(text);
  const set = (path: string[], old: string | undefined, typed: string, value = asYaml(typed)) => {
    if (typed !== old) setOrDelete(document, path, value);
  };
  set(["name"], before.name, fields.name, fields.name || undefined);
  set(["method"], before.method, fields.method);
  if (fields.method === "grid" && before.method !== "grid") document.delete("trials");
  else if (fields.method !== "grid") set(["trials"], shown(document.get("trials")), fields.trials);
  set(["parallel"], before.parallel, fields.parallel);
  set(["repeats"], before.repeats, fields.repeats);
  set(["objective", "metric"], before.metric, fields.metric, fields.metric || undefined);
  set(["objective", "goal"], before.goal, fields.goal);
  setSpace(document, before.space, fields.space);
  if (fields.asha === null) {
    if (before.asha !== null) document.delete("early_stopping");
  } else {
    set(["early_stopping", "asha", "min_steps"], before.asha?.min, fields.asha.min);
    set(["early_stopping", "asha", "max_steps"], before.asha?.max, fields.asha.max);
    set(["early_stopping", "asha", "factor"], before.asha?.factor, fields.asha.factor);
  }
  return document.toString({ lineWidth: 100, flowCollectionPadding: false });
}

/** Numbers are written as they were: 1.0e-07 is no 1e-7 to every reader, and 2**62 - 1 no double. */
function parsed(text: string): Document.Parsed {
  return parseDocument(text, {
    customTags: (tags) =>
      tags.map((tag) => {
        if (typeof tag === "string" || tag.collection || !/:(int|float)$/.test(tag.tag)) return tag;
        const { stringify } = tag;
        return {
          ...tag,
          stringify: (item, ...rest) =>
            item.source !== undefined && Number(item.source) === Number(item.value)
              ? item.source
              : (stringify?.(item, ...rest) ?? String(item.value)),
        };
      }),
  });
}

function fieldsOf(document: Document): SweepFields | null {
  const read = (...path: string[]) => shown(document.getIn(path));
  if (read("kind") !== "sweep") return null;
  const space: unknown = document.toJS().space;
  const rungs = (key: string) => read("early_stopping", "asha", key);
  return {
    name: read("name"),
    method: read("method"),
    metric: read("objective", "metric"),
    goal: read("objective", "goal"),
    trials: read("trials"),
    parallel: read("parallel"),
    repeats: read("repeats"),
    steps: read("job", "training", "steps"),
    space: isObject(space)
      ? Object.entries(space).map(([field, given], at) => dimension(String(at), field, given))
      : [],
    asha: document.hasIn(["early_stopping", "asha"])
      ? { min: rungs("min_steps"), max: rungs("max_steps"), factor: rungs("factor") }
      : null,
  };
}

/** Write the rows that changed; the others keep their pairs, and with them their comments. */
function setSpace(
  document: Document,
  before: readonly DimensionFields[],
  rows: readonly DimensionFields[],
): void {
  if (JSON.stringify(before) === JSON.stringify(rows)) return;
  const old = document.get("space");
  const pairs = isMap(old) ? old.items : [];
  const space = isMap(old) ? old : new YAMLMap();
  space.items = rows
    .filter(({ field }) => field !== "")
    .map((row) => {
      const at = before.findIndex(({ id, field }) => id === row.id && field === row.field);
      const pair = pairs[at] ?? document.createPair(row.field, null);
      if (JSON.stringify(before[at]) !== JSON.stringify(row)) {
        pair.value = document.createNode(givenBy(row), { flow: true });
      }
      return pair;
    });
  document.set("space", space);
}

function dimension(id: string, field: string, given: unknown): DimensionFields {
  const found = { ...NEW_DIMENSION, id, field };
  if (Array.isArray(given)) return { ...found, values: given.map(itemText).join(", ") };
  if (!isObject(given)) return { ...found, values: shown(given) };
  const form = "log" in given ? "log" : "range";
  const bounds = given[form];
  const [low, high] = Array.isArray(bounds) ? bounds : [];
  return { ...found, form, low: shown(low), high: shown(high), step: shown(given.step) };
}

function givenBy({ form, values, low, high, step }: DimensionFields): unknown {
  if (form === "values") return listOf(values);
  const given: Record<string, unknown> = { [form]: [asYaml(low) ?? null, asYaml(high) ?? null] };
  if (form === "range" && step !== "") given.step = asYaml(step);
  return given;
}

/** Values between commas, each as YAML reads it: a number, a text, a list. */
export function listOf(values: string): unknown[] {
  try {
    const list: unknown = parse(`[${values}]`);
    if (Array.isArray(list)) return list;
  } catch {
    // Not whole yet: a bracket or quote is open.
  }
  return values.split(",").map((each) => each.trim());
}

function itemText(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value);
  // Quoted where YAML would read something else.
  return listOf(value).length === 1 && listOf(value)[0] === value ? value : JSON.stringify(value);
}

/** A number or text as YAML reads it; undefined for nothing. */
function asYaml(typed: string): unknown {
  if (typed.trim() === "") return undefined;
  const number = Number(typed);
  return Number.isNaN(number) ? typed : number;
}

function shown(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function setOrDelete(document: Document, path: string[], value: unknown): void {
  if (value !== undefined) {
    const outer = path.slice(0, -1);
    // A key without a value, as in `objective:`, holds nothing yet.
    if (outer.length > 0 && document.getIn(outer) === null) document.deleteIn(outer);
    document.setIn(path, value);
  } else if (document.hasIn(path)) {
    document.deleteIn(path);
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
