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
  const document = parseDocument(text);
  if (document.errors.length > 0 || !isMap(document.contents)) return null;
  const read = (...path: string[]) => shown(document.getIn(path));
  if (read("kind") !== "sweep") return null;
  const space: unknown = document.toJS().space;
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
      ? {
          min: read("early_stopping", "asha", "min_steps"),
          max: read("early_stopping", "asha", "max_steps"),
          factor: read("early_stopping", "asha", "factor"),
        }
      : null,
  };
}

/** The YAML with these fields. What the form does not show, and comments, stay. */
export function withFields(text: string, fields: SweepFields): string {
  const document = parseDocument(text);
  const set = (path: string[], typed: string) => setOrDelete(document, path, asYaml(typed));
  setOrDelete(document, ["name"], fields.name || undefined);
  set(["method"], fields.method);
  set(["trials"], fields.method === "grid" ? "" : fields.trials);
  set(["parallel"], fields.parallel);
  set(["repeats"], fields.repeats);
  setOrDelete(document, ["objective", "metric"], fields.metric || undefined);
  set(["objective", "goal"], fields.goal);
  if (JSON.stringify(sweepFields(text)?.space) !== JSON.stringify(fields.space)) {
    const space = new YAMLMap();
    for (const each of fields.space.filter(({ field }) => field !== "")) {
      space.set(each.field, document.createNode(givenBy(each), { flow: true }));
    }
    document.set("space", space);
  }
  if (fields.asha === null) {
    document.delete("early_stopping");
  } else {
    set(["early_stopping", "asha", "min_steps"], fields.asha.min);
    set(["early_stopping", "asha", "max_steps"], fields.asha.max);
    set(["early_stopping", "asha", "factor"], fields.asha.factor);
  }
  return document.toString({ lineWidth: 100, flowCollectionPadding: false });
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
function listOf(values: string): unknown[] {
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
  if (value === undefined) document.deleteIn(path);
  else if (document.getIn(path) !== value) document.setIn(path, value);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
