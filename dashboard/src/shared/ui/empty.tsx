import { Stack, Text, Title } from "@mantine/core";

interface Props {
  title: string;
  /** Nothing else is on the page. */
  alone?: boolean;
  children?: React.ReactNode;
}

/** The text in place of an empty list. */
export function Empty({ title, alone, children }: Props) {
  return (
    <Stack align="center" gap="xs" py={56} px="md" ta="center">
      <Title order={alone ? 1 : 2} size="h4">
        {title}
      </Title>
      <Text component="div" c="dimmed" size="sm" maw={560}>
        {children}
      </Text>
    </Stack>
  );
}
