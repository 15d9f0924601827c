import { Stack, Text, Title } from "@mantine/core";
import { AnchorLink } from "./links";

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

/** The page of an id that nothing has. */
export function NotFound({
  what,
  id,
}: {
  what: "job" | "experiment" | "report" | "project";
  id: string;
}) {
  return (
    <Empty title={`${what.charAt(0).toUpperCase()}${what.slice(1)} not found`} alone>
      No {what} that you may see has the {what === "project" ? "name" : "id"} <code>{id}</code>.{" "}
      <AnchorLink to={`/${what}s`} size="sm" underline="always">
        Back to all {what}s
      </AnchorLink>
    </Empty>
  );
}
