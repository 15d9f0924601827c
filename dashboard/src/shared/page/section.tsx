import { Group, Title } from "@mantine/core";
import { type ReactNode, useId } from "react";

interface Props {
  title: string;
  /** Beside the title. */
  command?: ReactNode;
  children: ReactNode;
}

/** A part of a page under a title of its own. */
export function Section({ title, command, children }: Props) {
  const id = useId();
  return (
    <section aria-labelledby={id}>
      <Group gap="sm" mb="xs">
        <Title order={2} size="h4" id={id}>
          {title}
        </Title>
        {command}
      </Group>
      {children}
    </section>
  );
}
