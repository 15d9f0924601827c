import { Group } from "@mantine/core";
import { type DimensionFields, type ExperimentFields, listOf } from "./experiment-fields";
import { Choice, Count, type Option } from "./inputs";

const METHODS: Option[] = [
  { value: "grid", label: "Grid", hint: "Every combination." },
  { value: "random", label: "Random", hint: "Combinations drawn at random." },
  { value: "tpe", label: "TPE", hint: "Each combination is chosen from the results so far." },
];
const DEFAULT_TRIALS = 12;

interface Props {
  fields: ExperimentFields;
  set: (part: Partial<ExperimentFields>) => void;
}

export function Method({ fields, set }: Props) {
  const isGrid = fields.method === "grid";
  return (
    <Group gap="sm" align="flex-end" wrap="nowrap">
      <Choice
        field="method"
        label="Method"
        options={METHODS}
        value={fields.method}
        onChange={(method) => set({ method, trials: fields.trials || defaultTrials(fields.space) })}
      />
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
