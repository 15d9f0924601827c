import { Text } from "@mantine/core";

/** An id, below or beside the name that it belongs to. */
export function IdText({ id }: { id: string }) {
  return (
    <Text size="xs" c="dimmed" ff="monospace">
      {id}
    </Text>
  );
}
