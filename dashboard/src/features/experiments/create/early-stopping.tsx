import { SimpleGrid, Stack, Switch } from "@mantine/core";
import type { ExperimentFields } from "./experiment-fields";
import { Count } from "./inputs";

const FACTOR = 3;

interface Props {
  asha: ExperimentFields["asha"];
  /** Of a run in full. */
  steps: number;
  onChange: (asha: ExperimentFields["asha"]) => void;
}

export function EarlyStopping({ asha, steps, onChange }: Props) {
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
