import { Stack, Text, Title } from "@mantine/core";

interface Props {
  title: string;
  children?: React.ReactNode;
}

/** The text in place of an empty list. */
export function Empty({ title, children }: Props) {
  return (
    <Stack align="center" gap="xs" py={56} px="md" ta="center">
      <Title order={2} size="h4">
        {title}
      </Title>
      <Text component="div" c="dimmed" size="sm" maw={560}>
        {children}
      </Text>
    </Stack>
  );
}
