import { Group, Select, Text } from "@mantine/core";
import type { Spread } from "@/shared/curves/data/curve";
import { isSpread } from "@/shared/curves/data/spread";

const CHOICES = [
  { value: "", label: "Each run" },
  { value: "range", label: "Mean, min to max" },
  { value: "deviation", label: "Mean ± SD" },
];

interface Props {
  value: Spread | undefined;
  onChange: (spread: Spread | undefined) => void;
}

/** How the charts draw jobs that differ in their seeds alone. */
export function SeedChoice({ value, onChange }: Props) {
  return (
    <Group gap="xs">
      <Text size="xs" c="dimmed" id="compare-seeds">
        Seeds
      </Text>
      <Select
        size="xs"
        w={150}
        aria-labelledby="compare-seeds"
        data={CHOICES}
        allowDeselect={false}
        value={value ?? ""}
        onChange={(next) => onChange(isSpread(next) ? next : undefined)}
      />
    </Group>
  );
}
