import {
  ActionIcon,
  Autocomplete,
  Button,
  Fieldset,
  Group,
  NativeSelect,
  SegmentedControl,
  SimpleGrid,
  Stack,
  Switch,
  Text,
  TextInput,
} from "@mantine/core";
import { createContext, useContext, useState } from "react";
import type { FieldProblem } from "@/shared/api/problem";
import { CancelIcon, PlusIcon } from "@/shared/ui/icons";
import {
  type DimensionFields,
  type Form,
  listOf,
  NEW_DIMENSION,
  type SweepFields,
  sweepFields,
  withFields,
} from "./sweep-fields";

const FIELDS = [
  "training.learning_rate",
  "training.global_batch_size",
  "training.optimizer",
  "training.weight_decay",
  "training.precision",
  "task.params.hidden",
  "task.params.dropout",
  "resources.workers",
  "parallelism.strategy",
];
const METRICS = ["eval_accuracy", "eval_loss", "loss"];
const METHODS = [
  { value: "grid", label: "Grid" },
  { value: "random", label: "Random" },
  { value: "tpe", label: "TPE" },
];
const METHOD_HINTS: Record<string, string> = {
  grid: "Every combination.",
  random: "Combinations drawn at random.",
  tpe: "Each combination is chosen from the results so far.",
};
const FORM_LABELS: { value: Form; label: string }[] = [
  { value: "values", label: "Values" },
  { value: "range", label: "Range" },
  { value: "log", label: "Log range" },
];
const FACTOR = 3;
const DEFAULT_STEPS = 540;
const DEFAULT_TRIALS = 12;

interface Props {
  /** The experiment in YAML. */
  text: string;
  onChange: (text: string) => void;
  /** Of the text as it is. */
  problems: readonly FieldProblem[];
}

const Problems = createContext<readonly FieldProblem[]>([]);

/** What is wrong with a field of the experiment, or within it. */
function useProblem(path: string): string | undefined {
  return useContext(Problems).find(({ field }) => field === path || field.startsWith(`${path}.`))
    ?.message;
}

/** The fields of a sweep. The YAML beside them has the same, and the job. */
export function SweepForm({ text, onChange, problems }: Props) {
  // What is half typed, such as "0.", is in the form alone; the text has its value.
  const [form, setForm] = useState(() => ({ text, fields: sweepFields(text) }));
  const fields = form.text === text ? form.fields : sweepFields(text);
  if (fields === null)
    return (
      <Text size="sm" c="dimmed">
        There is a form for sweeps alone: this YAML has another kind, or an error.
      </Text>
    );
  const set = (part: Partial<SweepFields>) => {
    const changed = { ...fields, ...part };
    const next = withFields(text, changed);
    setForm({ text: next, fields: changed });
    onChange(next);
  };
  return (
    <Problems value={problems}>
      <SweepInputs fields={fields} set={set} />
    </Problems>
  );
}

interface InputsProps {
  fields: SweepFields;
  set: (part: Partial<SweepFields>) => void;
}

function SweepInputs({ fields, set }: InputsProps) {
  return (
    <Stack gap="sm">
      <TextInput
        label="Name"
        value={fields.name}
        maxLength={128}
        error={useProblem("name")}
        onChange={(event) => set({ name: event.currentTarget.value })}
      />
      <Space space={fields.space} onChange={(space) => set({ space })} />
      <Method fields={fields} set={set} />
      <SimpleGrid cols={2} spacing="sm">
        <Autocomplete
          label="Metric"
          description="A metric that the job reports"
          data={METRICS}
          value={fields.metric}
          error={useProblem("objective.metric")}
          onChange={(metric) => set({ metric })}
        />
        <NativeSelect
          label="Goal"
          description="Which values are better"
          data={[
            { value: "", label: "By its name" },
            { value: "max", label: "Higher" },
            { value: "min", label: "Lower" },
          ]}
          value={fields.goal}
          error={useProblem("objective.goal")}
          onChange={(event) => set({ goal: event.currentTarget.value })}
        />
        <Count
          field="parallel"
          label="Runs at a time"
          placeholder="4"
          value={fields.parallel}
          onChange={(parallel) => set({ parallel })}
        />
        <Count
          field="repeats"
          label="Repeats"
          placeholder="1"
          value={fields.repeats}
          onChange={(repeats) => set({ repeats })}
        />
      </SimpleGrid>
      <EarlyStopping
        asha={fields.asha}
        steps={Number(fields.steps) || DEFAULT_STEPS}
        onChange={(asha) => set({ asha })}
      />
    </Stack>
  );
}

interface SpaceProps {
  space: readonly DimensionFields[];
  onChange: (space: DimensionFields[]) => void;
}

function Space({ space, onChange }: SpaceProps) {
  const [added, setAdded] = useState(0);
  const add = () => {
    onChange([...space, { ...NEW_DIMENSION, id: `new-${added}` }]);
    setAdded(added + 1);
  };
  return (
    <Fieldset legend="Values to try" p="sm">
      <Stack gap="xs">
        {space.map((each) => (
          <Dimension
            key={each.id}
            dimension={each}
            isTwice={space.some(({ id, field }) => id !== each.id && field === each.field)}
            onChange={(changed) => onChange(space.map((old) => (old === each ? changed : old)))}
            onRemove={() => onChange(space.filter((old) => old !== each))}
          />
        ))}
        <Button
          variant="default"
          size="xs"
          leftSection={<PlusIcon />}
          onClick={add}
          style={{ alignSelf: "flex-start" }}
        >
          Add a field
        </Button>
      </Stack>
    </Fieldset>
  );
}

interface DimensionProps {
  dimension: DimensionFields;
  /** Another row has the same field. */
  isTwice: boolean;
  onChange: (dimension: DimensionFields) => void;
  onRemove: () => void;
}

function Dimension({ dimension, isTwice, onChange, onRemove }: DimensionProps) {
  const { field, form } = dimension;
  const set = (part: Partial<DimensionFields>) => onChange({ ...dimension, ...part });
  const name = field || "the new field";
  const problem = useProblem(`space.${field}`);
  const input = (key: "low" | "high" | "step" | "values", label: string, placeholder: string) => (
    <TextInput
      size="xs"
      flex={1}
      miw={60}
      aria-label={`${label} of ${name}`}
      placeholder={placeholder}
      value={dimension[key]}
      onChange={(event) => set({ [key]: event.currentTarget.value })}
    />
  );
  return (
    <Stack gap={4}>
      <Group gap="xs" wrap="nowrap" align="flex-start">
        <Autocomplete
          size="xs"
          flex={1}
          aria-label="Field of the job"
          placeholder="training.learning_rate"
          data={FIELDS}
          value={field}
          error={field && isTwice ? "is given twice" : problem}
          onChange={(changed) => set({ field: changed })}
        />
        <NativeSelect
          size="xs"
          w={104}
          aria-label={`How ${name} is given`}
          data={FORM_LABELS}
          value={form}
          onChange={(event) => set({ form: event.currentTarget.value as Form })}
        />
        <ActionIcon variant="subtle" color="gray" aria-label={`Remove ${name}`} onClick={onRemove}>
          <CancelIcon />
        </ActionIcon>
      </Group>
      <Group gap="xs" wrap="nowrap" pr={36}>
        {form === "values" ? (
          input("values", "Values", "0.001, 0.01, 0.1")
        ) : (
          <>
            {input("low", "Lowest value", "lowest")}
            {input("high", "Highest value", "highest")}
            {form === "range" ? input("step", "Step", "any") : null}
          </>
        )}
      </Group>
    </Stack>
  );
}

function Method({ fields, set }: InputsProps) {
  const isGrid = fields.method === "grid";
  return (
    <Group gap="sm" align="flex-end" wrap="nowrap">
      <Stack gap={4} flex={1}>
        <Text size="sm" fw={500} id="sweep-method">
          Method
        </Text>
        <SegmentedControl
          aria-labelledby="sweep-method"
          data={METHODS}
          value={fields.method}
          onChange={(method) =>
            set({ method, trials: fields.trials || defaultTrials(fields.space) })
          }
        />
        <Text size="xs" c="dimmed">
          {METHOD_HINTS[fields.method]}
        </Text>
      </Stack>
      {isGrid ? null : (
        <Count
          field="trials"
          label="Trials"
          placeholder="12"
          value={fields.trials}
          onChange={(trials) => set({ trials })}
        />
      )}
    </Group>
  );
}

/** At most as many as the space has combinations, where these can be counted. */
function defaultTrials(space: readonly DimensionFields[]): string {
  const sizes = space.map(({ form, values }) =>
    form === "values" ? listOf(values).length : Number.POSITIVE_INFINITY,
  );
  const combinations = sizes.reduce((product, size) => product * size, 1);
  return String(Math.min(DEFAULT_TRIALS, combinations));
}

interface EarlyStoppingProps {
  asha: SweepFields["asha"];
  /** Of a run in full. */
  steps: number;
  onChange: (asha: SweepFields["asha"]) => void;
}

function EarlyStopping({ asha, steps, onChange }: EarlyStoppingProps) {
  const threeRungs = {
    min: String(Math.max(1, Math.floor(steps / FACTOR ** 2))),
    max: String(steps),
    factor: String(FACTOR),
  };
  return (
    <Stack gap="xs">
      <Switch
        label="Stop poor runs early"
        checked={asha !== null}
        onChange={(event) => onChange(event.currentTarget.checked ? threeRungs : null)}
      />
      {asha === null ? null : (
        <SimpleGrid cols={3} spacing="sm">
          <Count
            field="early_stopping.asha.min_steps"
            label="First rung"
            value={asha.min}
            onChange={(min) => onChange({ ...asha, min })}
          />
          <Count
            field="early_stopping.asha.max_steps"
            label="Max steps"
            value={asha.max}
            onChange={(max) => onChange({ ...asha, max })}
          />
          <Count
            field="early_stopping.asha.factor"
            label="Factor"
            placeholder="3"
            value={asha.factor}
            onChange={(factor) => onChange({ ...asha, factor })}
          />
        </SimpleGrid>
      )}
    </Stack>
  );
}

interface CountProps {
  /** Of the experiment. */
  field: string;
  label: string;
  value: string;
  placeholder?: string;
  onChange: (value: string) => void;
}

/** A number of things, as text: the coordinator says what is wrong with it. */
function Count({ field, label, value, placeholder, onChange }: CountProps) {
  return (
    <TextInput
      label={label}
      error={useProblem(field)}
      inputMode="numeric"
      placeholder={placeholder}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}
