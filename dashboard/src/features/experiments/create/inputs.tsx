import { SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import { createContext, useContext, useId } from "react";
import type { FieldProblem } from "@/shared/api/problem";

/** What is wrong with the experiment as it is. */
export const Problems = createContext<readonly FieldProblem[]>([]);

/** What is wrong with a field of the experiment, or within it. */
export function useProblem(path: string): string | undefined {
  return useContext(Problems).find(({ field }) => field === path || field.startsWith(`${path}.`))
    ?.message;
}

interface CountProps {
  /** Of the experiment. */
  field: string;
  label: string;
  value: string;
  placeholder?: string | undefined;
  onChange: (value: string) => void;
}

/** A number of things, as text: the coordinator says what is wrong with it. */
export function Count({ field, label, value, placeholder, onChange }: CountProps) {
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

interface ChoiceProps {
  /** Of the experiment. */
  field: string;
  label: string;
  options: readonly Option[];
  value: string;
  onChange: (value: string) => void;
}

/** A value of few, and what it means. */
export interface Option {
  value: string;
  label: string;
  hint: string;
}

export function Choice({ field, label, options, value, onChange }: ChoiceProps) {
  const id = useId();
  const problem = useProblem(field);
  return (
    <Stack gap={4} flex={1}>
      <Text size="sm" fw={500} id={id}>
        {label}
      </Text>
      <SegmentedControl
        aria-labelledby={id}
        aria-describedby={`${id}-hint`}
        data={options.map((each) => ({ value: each.value, label: each.label }))}
        value={value}
        onChange={onChange}
      />
      <Text size="xs" c={problem ? "red" : "dimmed"} id={`${id}-hint`}>
        {problem ?? options.find((each) => each.value === value)?.hint}
      </Text>
    </Stack>
  );
}
