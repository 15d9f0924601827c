import {
  ActionIcon,
  Autocomplete,
  Button,
  Fieldset,
  Group,
  NativeSelect,
  Stack,
  TextInput,
} from "@mantine/core";
import { useState } from "react";
import { CancelIcon, PlusIcon } from "@/shared/ui/icons";
import {
  type DimensionFields,
  type ExperimentFields,
  type Form,
  inForm,
  NEW_DIMENSION,
} from "./experiment-fields";
import { useProblem } from "./inputs";

/** Fields of any job. */
const RESOURCES = ["resources.workers"];
/** Fields of a job with a task. */
const TASK_FIELDS = [
  "training.learning_rate",
  "training.global_batch_size",
  "training.optimizer",
  "training.weight_decay",
  "training.precision",
  "task.params.hidden",
  "task.params.dropout",
  ...RESOURCES,
  "parallelism.strategy",
];
const FORM_LABELS: { value: Form; label: string }[] = [
  { value: "values", label: "Values" },
  { value: "range", label: "Range" },
  { value: "log", label: "Log range" },
];

/** Most parameters of the job that have a button of their own. */
const OFFERED = 8;

interface SpaceProps {
  legend: string;
  /** The job whose fields vary. */
  job: Pick<ExperimentFields, "isScript" | "parameters">;
  /** All rows of the experiment. */
  space: readonly DimensionFields[];
  /** Which of them are shown. */
  isShown: (row: DimensionFields) => boolean;
  onChange: (space: DimensionFields[]) => void;
}

/** The values of fields of the job that have no input of their own. */
export function SpaceFields({ legend, job, space, isShown, onChange }: SpaceProps) {
  const [added, setAdded] = useState(0);
  const add = (part: Partial<DimensionFields> = {}) => {
    onChange([...space, { ...NEW_DIMENSION, ...part, id: `new-${added}` }]);
    setAdded(added + 1);
  };
  const parameters = Object.entries(job.parameters).map(([name, values]) => ({
    field: `parameters.${name}`,
    values,
  }));
  const suggestions = [
    ...parameters.map(({ field }) => field),
    ...(job.isScript ? RESOURCES : TASK_FIELDS),
  ];
  const offered = parameters
    .filter((each) => !space.some(({ field }) => field === each.field))
    .slice(0, OFFERED);
  return (
    <Fieldset legend={legend} p="sm">
      <Stack gap="xs">
        {space.filter(isShown).map((each) => (
          <Dimension
            key={each.id}
            dimension={each}
            suggestions={suggestions}
            isTwice={space.some(({ id, field }) => id !== each.id && field === each.field)}
            onChange={(changed) => onChange(space.map((old) => (old === each ? changed : old)))}
            onRemove={() => onChange(space.filter((old) => old !== each))}
          />
        ))}
        <Group gap="xs">
          <Button variant="default" size="xs" leftSection={<PlusIcon />} onClick={() => add()}>
            Add a field
          </Button>
          {offered.map((each) => (
            <Button
              key={each.field}
              variant="subtle"
              size="compact-xs"
              leftSection={<PlusIcon />}
              onClick={() => add(each)}
            >
              {each.field}
            </Button>
          ))}
        </Group>
      </Stack>
    </Fieldset>
  );
}

interface DimensionProps {
  dimension: DimensionFields;
  /** Fields of the job. */
  suggestions: string[];
  /** Another row has the same field. */
  isTwice: boolean;
  onChange: (dimension: DimensionFields) => void;
  onRemove: () => void;
}

function Dimension({ dimension, suggestions, isTwice, onChange, onRemove }: DimensionProps) {
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
          placeholder={suggestions[0] ?? "parameters.NAME"}
          data={suggestions}
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
          onChange={(event) => onChange(inForm(dimension, event.currentTarget.value as Form))}
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
