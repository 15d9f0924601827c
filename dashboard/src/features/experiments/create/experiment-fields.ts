import { type Document, isMap, parse, parseDocument, YAMLMap } from "yaml";
import type { ExperimentSpec } from "@/client";

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

export const KINDS = ["sweep", "benchmark", "scaling"] as const;
export type Kind = ExperimentSpec["kind"];

interface Key {
  path: readonly string[];
  kinds: readonly Kind[];
  /** Never read as a number. */
  isText?: boolean;
}

/** What has one number or text, by its name in the form. */
export const KEYS = {
  name: { path: ["name"], kinds: KINDS, isText: true },
  method: { path: ["method"], kinds: ["sweep"] },
  trials: { path: ["trials"], kinds: ["sweep"] },
  metric: { path: ["objective", "metric"], kinds: ["sweep"], isText: true },
  goal: { path: ["objective", "goal"], kinds: ["sweep"] },
  parallel: { path: ["parallel"], kinds: ["sweep"] },
  repeats: { path: ["repeats"], kinds: KINDS },
  warmup: { path: ["warmup_steps"], kinds: ["benchmark", "scaling"] },
} satisfies Record<string, Key>;
export type KeyName = keyof typeof KEYS;
const KEY_LIST = Object.entries(KEYS) as [KeyName, Key][];

/** Keys of the document that not every kind has. */
const KEYS_OF_KIND: Record<Kind, readonly string[]> = {
  sweep: ["method", "objective", "trials", "parallel", "early_stopping"],
  benchmark: ["warmup_steps", "baseline"],
  scaling: ["warmup_steps", "scaling"],
};

/** What the form shows; "" where the document leaves a key out. */
export interface ExperimentFields extends Record<KeyName, string> {
  kind: Kind;
  space: DimensionFields[];
  /** Steps of the job; not changed here. */
  steps: string;
  /** Whether the job is a script, which has no fields of training. */
  isScript: boolean;
  /** Parameters of the job, and their values as they are typed; not changed here. */
  parameters: Record<string, string>;
  /** Null: all runs take all steps. */
  asha: { min: string; max: string; factor: string } | null;
  /** The combination that the others are compared with: values by field. */
  baseline: Record<string, string> | null;
  /** "strong", "weak" or "strong, weak". */
  scaling: string;
}

const ASHA_KEYS = { min: "min_steps", max: "max_steps", factor: "factor" };

export const NEW_DIMENSION: Omit<DimensionFields, "id"> = {
  field: "",
  form: "values",
  values: "",
  low: "",
  high: "",
  step: "",
};

/** The fields of an experiment in YAML; null for an unknown kind, and for what is no YAML. */
export function experimentFields(text: string): ExperimentFields | null {
  const document = parsed(text);
  if (document.errors.length > 0 || !isMap(document.contents)) return null;
  try {
    return fieldsOf(document);
  } catch {
    return null; // an alias of nothing, such as `*.py`
  }
}

/** The YAML with these fields. What they leave as it was, and comments, stay. */
export function withFields(text: string, fields: ExperimentFields): string {
  const before = experimentFields(text);
  if (before === null) return text;
  const document = parsed(text);
  setKind(document, before.kind, fields.kind);
  const hasTrials = fields.method !== "grid";
  if (!hasTrials && before.method !== "grid") document.delete("trials");
  for (const [name, { path, kinds, isText }] of KEY_LIST) {
    if (!kinds.includes(fields.kind) || (name === "trials" && !hasTrials)) continue;
    if (fields[name] === before[name]) continue;
    setOrDelete(document, path, isText ? fields[name] || undefined : asYaml(fields[name]));
  }
  setSpace(document, before.space, fields.space);
  if (fields.kind === "sweep") setEarlyStopping(document, before.asha, fields.asha);
  if (fields.kind === "benchmark") setBaseline(document, before, fields);
  if (fields.kind === "scaling" && fields.scaling !== before.scaling) {
    document.set("scaling", document.createNode(listOf(fields.scaling), { flow: true }));
  }
  return document.toString({ lineWidth: 100, flowCollectionPadding: false });
}

/** Set the kind, and leave out what it does not have. */
function setKind(document: Document, before: Kind, kind: Kind): void {
  if (before === kind) return;
  document.set("kind", kind);
  for (const key of KEYS_OF_KIND[before]) {
    if (!KEYS_OF_KIND[kind].includes(key)) document.delete(key);
  }
}

function setEarlyStopping(
  document: Document,
  before: ExperimentFields["asha"],
  asha: ExperimentFields["asha"],
): void {
  if (asha === null) {
    if (before !== null) document.delete("early_stopping");
    return;
  }
  for (const [name, key] of Object.entries(ASHA_KEYS) as [keyof typeof ASHA_KEYS, string][]) {
    const path = ["early_stopping", "asha", key];
    if (asha[name] !== before?.[name]) setOrDelete(document, path, asYaml(asha[name]));
  }
}

/** Write one combination of the space: values that it no longer has are replaced by the first. */
function setBaseline(document: Document, before: ExperimentFields, fields: ExperimentFields): void {
  const { baseline, space } = fields;
  if (isSame(before.baseline, baseline) && isSame(before.space, space)) return;
  if (baseline === null) {
    document.delete("baseline");
    return;
  }
  const values = choicesOf(space).map(({ field, items }) => {
    const chosen = items.find((item) => itemText(item) === baseline[field]);
    return [field, chosen ?? items[0]] as const;
  });
  document.set("baseline", document.createNode(Object.fromEntries(values)));
}

/** The fields with more than one value in a list, of which a baseline has one each. */
export function choicesOf(space: readonly DimensionFields[]) {
  return space
    .filter(({ field, form }) => field !== "" && form === "values")
    .map(({ field, values }) => ({ field, items: listOf(values) }))
    .filter(({ items }) => items.length > 1);
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

function fieldsOf(document: Document): ExperimentFields | null {
  const read = (...path: string[]) => shown(document.getIn(path));
  const kind = KINDS.find((each) => each === read("kind"));
  if (kind === undefined) return null;
  const { job, space, baseline, scaling } = document.toJS() as Record<string, unknown>;
  const rungs = (key: string) => read("early_stopping", "asha", key);
  const keys = KEY_LIST.map(([name, { path }]) => [name, read(...path)]);
  return {
    ...(Object.fromEntries(keys) as Record<KeyName, string>),
    kind,
    steps: read("job", "training", "steps"),
    isScript: isObject(job) && isObject(job.script),
    parameters: isObject(job) && isObject(job.parameters) ? itemTexts(job.parameters) : {},
    space: isObject(space)
      ? Object.entries(space).map(([field, given], at) => dimension(String(at), field, given))
      : [],
    asha: document.hasIn(["early_stopping", "asha"])
      ? {
          min: rungs(ASHA_KEYS.min),
          max: rungs(ASHA_KEYS.max),
          factor: rungs(ASHA_KEYS.factor),
        }
      : null,
    baseline: isObject(baseline) ? itemTexts(baseline) : null,
    scaling: Array.isArray(scaling) ? scaling.map(itemText).join(", ") : "",
  };
}

/** Write the rows that changed; the others keep their pairs, and with them their comments. */
function setSpace(
  document: Document,
  before: readonly DimensionFields[],
  rows: readonly DimensionFields[],
): void {
  if (isSame(before, rows)) return;
  const old = document.get("space");
  const pairs = isMap(old) ? old.items : [];
  const space = isMap(old) ? old : new YAMLMap();
  space.items = rows
    .filter(({ field }) => field !== "")
    .map((row) => {
      const at = before.findIndex(({ id, field }) => id === row.id && field === row.field);
      const pair = pairs[at] ?? document.createPair(row.field, null);
      if (!isSame(before[at], row)) {
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

/** A dimension in another form, with the bounds or values that it had in the one before. */
export function inForm(dimension: DimensionFields, form: Form): DimensionFields {
  const { values, low, high } = dimension;
  if (form === "values") {
    return { ...dimension, form, values: values || [low, high].filter(Boolean).join(", ") };
  }
  const numbers = listOf(values).filter((each) => typeof each === "number");
  if (low !== "" || high !== "" || numbers.length === 0) return { ...dimension, form };
  return {
    ...dimension,
    form,
    low: String(Math.min(...numbers)),
    high: String(Math.max(...numbers)),
  };
}

function givenBy({ form, values, low, high, step }: DimensionFields): unknown {
  if (form === "values") return listOf(values);
  const given: Record<string, unknown> = { [form]: [asYaml(low) ?? null, asYaml(high) ?? null] };
  if (form === "range" && step !== "") given.step = asYaml(step);
  return given;
}

/** Values between commas, each as YAML reads it: a number, a text, a list; empty ones are none. */
export function listOf(values: string): unknown[] {
  try {
    const list: unknown = parse(`[${values}]`);
    if (Array.isArray(list)) return list;
  } catch {
    // A bracket or quote is still open, or nothing stands between two commas.
  }
  return values
    .split(",")
    .map((each) => each.trim())
    .filter((each) => each !== "")
    .map(partText);
}

/** A value between commas as YAML reads it, or its text while that is not whole. */
function partText(part: string): unknown {
  try {
    return parse(part);
  } catch {
    return part;
  }
}

/** A value as it is typed. */
export function itemText(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value);
  // Quoted where YAML would read something else.
  return listOf(value).length === 1 && listOf(value)[0] === value ? value : JSON.stringify(value);
}

function itemTexts(items: Record<string, unknown>): Record<string, string> {
  return Object.fromEntries(Object.entries(items).map(([name, item]) => [name, itemText(item)]));
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

function setOrDelete(document: Document, path: readonly string[], value: unknown): void {
  if (value !== undefined) {
    // What is no mapping, as in `objective: loss`, or has no value yet, makes place for one.
    for (let length = 1; length < path.length; length++) {
      const outer = path.slice(0, length);
      if (document.hasIn(outer) && !isMap(document.getIn(outer, true))) document.deleteIn(outer);
    }
    document.setIn(path, value);
  } else if (document.hasIn(path)) {
    document.deleteIn(path);
  }
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
