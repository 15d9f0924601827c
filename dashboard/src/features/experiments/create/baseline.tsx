import { NativeSelect, SimpleGrid, Stack, Switch } from "@mantine/core";
import { fieldLabels } from "../spec";
import { choicesOf, type ExperimentFields, itemText } from "./experiment-fields";
import { useProblem } from "./inputs";

interface Props {
  fields: ExperimentFields;
  onChange: (baseline: ExperimentFields["baseline"]) => void;
}

/** The combination that the others are compared with: a value of each field that varies. */
export function Baseline({ fields: { baseline, space }, onChange }: Props) {
  const problem = useProblem("baseline");
  const choices = choicesOf(space);
  const labels = fieldLabels(choices.map(({ field }) => field));
  return (
    <Stack gap="xs">
      <Switch
        label="Compare with one combination"
        checked={baseline !== null}
        error={problem}
        onChange={(event) => onChange(event.currentTarget.checked ? {} : null)}
      />
      {baseline === null ? null : (
        <SimpleGrid cols={{ base: 1, xs: 2 }} spacing="sm">
          {choices.map(({ field, items }) => (
            <NativeSelect
              key={field}
              size="xs"
              label={`Baseline: ${labels[field] ?? field}`}
              data={items.map(itemText)}
              value={baseline[field]}
              onChange={(event) => onChange({ ...baseline, [field]: event.currentTarget.value })}
            />
          ))}
        </SimpleGrid>
      )}
    </Stack>
  );
}
