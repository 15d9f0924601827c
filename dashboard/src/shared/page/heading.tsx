import { Group, Title } from "@mantine/core";
import type { ReactNode } from "react";

/** The title of a page, and beside it its buttons. */
export function PageHeading({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Group justify="space-between">
      <Title order={1} size="h3">
        {title}
      </Title>
      {children}
    </Group>
  );
}
