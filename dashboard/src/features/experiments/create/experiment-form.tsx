import { Autocomplete, NativeSelect, SimpleGrid, Stack, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import type { FieldProblem } from "@/shared/api/problem";
import type { Examples } from "@/shared/spec/examples";
import { Baseline } from "./baseline";
import { EarlyStopping } from "./early-stopping";
import {
  type DimensionFields,
  type ExperimentFields,
  experimentFields,
  KEYS,
  type KeyName,
  type Kind,
  withFields,
} from "./experiment-fields";
import { Choice, Count, type Option, Problems, useProblem } from "./inputs";
import { isAxis, Matrix } from "./matrix";
import { Method } from "./method";
import { SpaceFields } from "./space-fields";

const KINDS: Option[] = [
  { value: "sweep", label: "Sweep", hint: "Which values are best?" },
  { value: "benchmark", label: "Benchmark", hint: "How fast is each combination?" },
  { value: "scaling", label: "Scaling", hint: "How much faster are more workers?" },
];
const SCALINGS: Option[] = [
  { value: "strong", label: "Strong", hint: "The global batch size stays the same." },
  { value: "weak", label: "Weak", hint: "The batch of each worker stays the same." },
  { value: "strong, weak", label: "Both", hint: "Each number of workers runs with both batches." },
];
const DEFAULT_STEPS = 540;

interface Input {
  name: KeyName;
  label: string;
  hint?: string;
  placeholder?: string;
  suggestions?: string[];
  choices?: { value: string; label: string }[];
}

const INPUTS: Input[] = [
  {
    name: "metric",
    label: "Metric",
    hint: "A metric that the job reports",
    suggestions: ["eval_accuracy", "eval_loss", "loss"],
  },
  {
    name: "goal",
    label: "Goal",
    hint: "Which values are better",
    choices: [
      { value: "", label: "By its name" },
      { value: "max", label: "Higher" },
      { value: "min", label: "Lower" },
    ],
  },
  { name: "parallel", label: "Runs at a time", placeholder: "4" },
  { name: "repeats", label: "Repeats", placeholder: "1" },
  { name: "warmup", label: "Warm-up steps", placeholder: "10" },
];

interface Props {
  /** The experiment in YAML. */
  text: string;
  onChange: (text: string) => void;
  /** Of the text as it is. */
  problems: readonly FieldProblem[];
  examples: Examples;
}

/** The fields of an experiment. The YAML beside them has the same, and the job. */
export function ExperimentForm({ text, onChange, problems, examples }: Props) {
  // What is half typed, such as "0.", is in the form alone; the text has its value.
  const [form, setForm] = useState(() => ({ text, fields: experimentFields(text) }));
  const fields = form.text === text ? form.fields : experimentFields(text);
  if (fields === null)
    return (
      <Text size="sm" c="dimmed">
        The form needs valid YAML with kind: sweep, benchmark or scaling.
      </Text>
    );
  const set = (part: Partial<ExperimentFields>) => {
    const changed = { ...fields, ...part };
    const next = withFields(text, changed);
    setForm({ text: next, fields: changed });
    onChange(next);
  };
  const setKind = (kind: Kind) => {
    // An example that nobody changed is exchanged for one of the other kind.
    const example = examples.some((each) => each.text === text)
      ? examples.find((each) => experimentFields(each.text)?.kind === kind)
      : undefined;
    if (example) onChange(example.text);
    else set(ofKind(fields, kind));
  };
  return (
    <Problems value={problems}>
      <Inputs fields={fields} set={set} setKind={setKind} />
    </Problems>
  );
}

interface InputsProps {
  fields: ExperimentFields;
  set: (part: Partial<ExperimentFields>) => void;
  setKind: (kind: Kind) => void;
}

function Inputs({ fields, set, setKind }: InputsProps) {
  const { kind, space } = fields;
  const setSpace = (changed: DimensionFields[]) => set({ space: changed });
  const inputs = INPUTS.filter(({ name }) => KEYS[name].kinds.some((each) => each === kind));
  return (
    <Stack gap="sm">
      <Choice
        field="kind"
        label="Kind"
        options={KINDS}
        value={kind}
        onChange={(chosen) => setKind(chosen as Kind)}
      />
      <TextInput
        label="Name"
        value={fields.name}
        maxLength={128}
        error={useProblem("name")}
        onChange={(event) => set({ name: event.currentTarget.value })}
      />
      {kind === "sweep" ? null : <Matrix fields={fields} onChange={setSpace} />}
      <SpaceFields
        legend={kind === "sweep" ? "Values to try" : "Other fields to compare"}
        job={fields}
        space={space}
        isShown={(row) => !isAxis(kind, row)}
        onChange={setSpace}
      />
      {kind === "sweep" ? <Method fields={fields} set={set} /> : null}
      {kind === "benchmark" ? (
        <Baseline fields={fields} onChange={(baseline) => set({ baseline })} />
      ) : null}
      {kind === "scaling" ? (
        <Choice
          field="scaling"
          label="Scaling"
          options={SCALINGS}
          value={fields.scaling || "strong"}
          onChange={(scaling) => set({ scaling })}
        />
      ) : null}
      <SimpleGrid cols={2} spacing="sm">
        {inputs.map((input) => (
          <KeyInput
            key={input.name}
            input={input}
            value={fields[input.name]}
            onChange={(value) => set({ [input.name]: value })}
          />
        ))}
      </SimpleGrid>
      {kind === "sweep" ? (
        <EarlyStopping
          asha={fields.asha}
          steps={Number(fields.steps) || DEFAULT_STEPS}
          onChange={(asha) => set({ asha })}
        />
      ) : null}
    </Stack>
  );
}

/** Fields of another kind, with what it requires; what only the old kind has returns with it. */
function ofKind(fields: ExperimentFields, kind: Kind): ExperimentFields {
  const required = { method: fields.method || "grid", metric: fields.metric || "eval_accuracy" };
  return { ...fields, kind, ...(kind === "sweep" ? required : {}) };
}

interface KeyInputProps {
  input: Input;
  value: string;
  onChange: (value: string) => void;
}

function KeyInput({ input, value, onChange }: KeyInputProps) {
  const { name, label, hint, placeholder, suggestions, choices } = input;
  const field = KEYS[name].path.join(".");
  const shown = { label, description: hint, value, error: useProblem(field) };
  if (choices) {
    const change = (event: React.ChangeEvent<HTMLSelectElement>) => onChange(event.target.value);
    return <NativeSelect {...shown} data={choices} onChange={change} />;
  }
  if (suggestions) return <Autocomplete {...shown} data={suggestions} onChange={onChange} />;
  return (
    <Count
      field={field}
      label={label}
      placeholder={placeholder}
      value={value}
      onChange={onChange}
    />
  );
}
