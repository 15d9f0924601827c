import { expect, test } from "vitest";
import { parse } from "yaml";
import { EXAMPLES } from "./examples";
import { experimentFields, inForm, listOf, NEW_DIMENSION, withFields } from "./experiment-fields";

const TEXT = `# why
name: rates
kind: sweep
job: {name: digits, task: {name: digits}} # kept
space:
  training.learning_rate: {log: [0.0001, 0.1]}
  task.params.hidden: [[32], [64, 64]]
  training.optimizer: [sgd, "on", 1, true]
  training.weight_decay: {range: [0, 0.5], step: 0.1}
method: random
trials: 12
objective: {metric: eval_accuracy}
seed: 3
`;

const fieldsOf = (text: string) => {
  const fields = experimentFields(text);
  if (fields === null) throw new Error("no sweep");
  return fields;
};

test("fields are read from the document", () => {
  const fields = fieldsOf(TEXT);
  expect(fields).toMatchObject({ name: "rates", method: "random", trials: "12", goal: "" });
  expect(fields.asha).toBeNull();
  expect(fields.space.map(({ form }) => form)).toEqual(["log", "values", "values", "range"]);
  expect(fields.space[0]).toMatchObject({ low: "0.0001", high: "0.1" });
  expect(fields.space[1]?.values).toBe("[32], [64,64]");
  expect(fields.space[3]?.step).toBe("0.1");
});

test("unchanged fields leave the document's meaning and comments", () => {
  for (const text of [TEXT, ...EXAMPLES.map((example) => example.text)]) {
    const fields = experimentFields(text);
    if (fields === null) continue;
    const written = withFields(text, fields);
    expect(parse(written)).toEqual(parse(text));
    expect(fieldsOf(written)).toEqual(fields);
  }
  expect(withFields(TEXT, fieldsOf(TEXT))).toContain("# why");
});

test("values between commas are read, empty ones left out", () => {
  expect(listOf("0.1, adam, [32]")).toEqual([0.1, "adam", [32]]);
  expect(listOf("0.1, ,0.2,")).toEqual([0.1, 0.2]);
  expect(listOf(",, 0.1")).toEqual([0.1]);
  expect(listOf("[32], [64")).toEqual([[32], "[64"]);
});

test("values are written back as they were read", () => {
  const fields = fieldsOf(TEXT);
  const [first, ...others] = fields.space;
  if (first === undefined) throw new Error("no space");
  const space = [...others, { ...first, form: "range" as const, step: "0.05" }];
  const changed = parse(withFields(TEXT, { ...fields, space }));
  expect(changed.space).toEqual({
    "task.params.hidden": [[32], [64, 64]],
    "training.optimizer": ["sgd", "on", 1, true],
    "training.weight_decay": { range: [0, 0.5], step: 0.1 },
    "training.learning_rate": { range: [0.0001, 0.1], step: 0.05 },
  });
  expect(changed).toMatchObject({ seed: 3, job: { name: "digits" } });
});

test("what is half typed keeps the document valid YAML", () => {
  const fields = fieldsOf(TEXT);
  for (const values of ["", "[1", '"', "1, ", "{", "a: b", "#"]) {
    const space = [{ ...NEW_DIMENSION, id: "0", field: "training.seed", values }];
    expect(fieldsOf(withFields(TEXT, { ...fields, space })).space).toHaveLength(1);
  }
});

test("a grid has no number of trials, and early stopping is added and removed", () => {
  const fields = fieldsOf(TEXT);
  const asha = { min: "20", max: "540", factor: "" };
  const text = withFields(TEXT, { ...fields, method: "grid", asha });
  expect(parse(text)).toMatchObject({
    early_stopping: { asha: { min_steps: 20, max_steps: 540 } },
  });
  expect(parse(text).trials).toBeUndefined();
  expect(parse(withFields(text, { ...fieldsOf(text), asha: null })).early_stopping).toBeUndefined();
});

test("an unknown kind and broken YAML have no form", () => {
  expect(experimentFields(TEXT.replace("sweep", "race"))).toBeNull();
  expect(experimentFields("name: [")).toBeNull();
  expect(experimentFields("")).toBeNull();
});

test("only what changes is written", () => {
  const text = TEXT.replace("method: random", "method: grid")
    .replace("seed: 3", "seed: 4611686018427387903")
    .replace("[0.0001, 0.1]}", "[1.0e-07, 0.1]} # wide");
  const named = withFields(text, { ...fieldsOf(text), name: "other" });
  expect(named).toBe(text.replace("rates", "other"));
  const fields = fieldsOf(text);
  const space = fields.space.map((row, at) => (at === 1 ? { ...row, values: "[8]" } : row));
  expect(withFields(text, { ...fields, space })).toBe(text.replace("[[32], [64, 64]]", "[[8]]"));
});

test("numbers that change are written anew", () => {
  const text = `${TEXT}early_stopping: {asha: {min_steps: 1, max_steps: 9}}\n`;
  const fields = fieldsOf(text);
  const asha = { min: "2", max: "9", factor: "" };
  const written = parse(withFields(text, { ...fields, trials: "8", asha }));
  expect(written).toMatchObject({ trials: 8, early_stopping: { asha: { min_steps: 2 } } });
});

test("an incomplete document is completed, and one with a stray alias has no form", () => {
  const incomplete = ["", "objective:\n", "early_stopping: {asha: }\n", "space:\n"];
  for (const rest of [...incomplete, "objective: loss\n", "early_stopping: asha\n"]) {
    const text = `kind: sweep\n${rest}`;
    const fields = { ...fieldsOf(text), name: "a", metric: "loss", goal: "" };
    const asha = { min: "1", max: "9", factor: "" };
    const written = fieldsOf(withFields(text, { ...fields, asha }));
    expect(written).toMatchObject({ name: "a", metric: "loss", asha });
  }
  expect(experimentFields("kind: sweep\njob: {code: *x}\n")).toBeNull();
});

const BENCHMARK = `kind: benchmark
space:
  parallelism.strategy: [ddp, fsdp]
  resources.workers: [1, 2]
baseline: {parallelism.strategy: ddp, resources.workers: 1}
warmup_steps: 2
`;

test("a baseline follows the values of the space", () => {
  const fields = fieldsOf(BENCHMARK);
  const [strategy, workers] = fields.space;
  if (strategy === undefined || workers === undefined) throw new Error("no space");
  const precision = { ...NEW_DIMENSION, id: "new-0", field: "training.precision" };
  const space = [{ ...strategy, values: "fsdp, tensor" }, workers];
  const written = withFields(BENCHMARK, {
    ...fields,
    space: [...space, { ...precision, values: "fp32, bf16" }],
  });
  expect(parse(written).baseline).toEqual({
    "parallelism.strategy": "fsdp",
    "resources.workers": 1,
    "training.precision": "fp32",
  });
  const without = withFields(written, { ...fieldsOf(written), baseline: null });
  expect(parse(without).baseline).toBeUndefined();
});

test("another kind leaves out what it does not have", () => {
  const sweep = fieldsOf(TEXT);
  const benchmark = withFields(TEXT, { ...sweep, kind: "benchmark", warmup: "5" });
  expect(Object.keys(parse(benchmark))).toEqual([
    "name",
    "kind",
    "job",
    "space",
    "seed",
    "warmup_steps",
  ]);
  const fields = { ...fieldsOf(benchmark), kind: "scaling" as const, scaling: "strong, weak" };
  const scaling = withFields(benchmark, fields);
  expect(parse(scaling)).toMatchObject({ scaling: ["strong", "weak"], warmup_steps: 5 });
  expect(parse(withFields(scaling, { ...sweep, kind: "sweep" }))).toEqual(parse(TEXT));
});

test("a field in another form keeps its bounds", () => {
  const values = { ...NEW_DIMENSION, id: "0", field: "lr", values: "0.01, 0.001, 0.1" };
  const log = inForm(values, "log");
  expect(log).toMatchObject({ form: "log", low: "0.001", high: "0.1", values: values.values });
  expect(inForm(log, "values")).toEqual({ ...log, form: "values" });
  expect(inForm({ ...log, values: "" }, "values").values).toBe("0.001, 0.1");
  expect(inForm({ ...values, values: "sgd" }, "range")).toMatchObject({ low: "", high: "" });
});
