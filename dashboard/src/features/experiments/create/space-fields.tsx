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
import { type DimensionFields, type Form, inForm, NEW_DIMENSION } from "./experiment-fields";
import { useProblem } from "./inputs";

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
const FORM_LABELS: { value: Form; label: string }[] = [
  { value: "values", label: "Values" },
  { value: "range", label: "Range" },
  { value: "log", label: "Log range" },
];

interface SpaceProps {
  legend: string;
  /** All rows of the experiment. */
  space: readonly DimensionFields[];
  /** Which of them are shown. */
  isShown: (row: DimensionFields) => boolean;
  onChange: (space: DimensionFields[]) => void;
}

/** The values of fields of the job that have no input of their own. */
export function SpaceFields({ legend, space, isShown, onChange }: SpaceProps) {
  const [added, setAdded] = useState(0);
  const add = () => {
    onChange([...space, { ...NEW_DIMENSION, id: `new-${added}` }]);
    setAdded(added + 1);
  };
  return (
    <Fieldset legend={legend} p="sm">
      <Stack gap="xs">
        {space.filter(isShown).map((each) => (
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
