import { Group, Stack } from "@mantine/core";
import { useMemo } from "react";
import type { Job } from "@/shared/api/types";
import { specText } from "@/shared/spec-text";
import { CopyButton } from "@/shared/ui/copy-button";
import { ButtonLink } from "@/shared/ui/links";
import classes from "./spec-tab.module.css";

/** The submitted spec with its defaults. */
export default function SpecTab({ job }: { job: Job }) {
  const text = useMemo(() => specText(job.spec), [job.spec]);
  return (
    <Stack gap="sm">
      <Group justify="flex-end" gap="xs">
        <CopyButton value={text} label="Copy" />
        <ButtonLink size="xs" variant="default" to="/new" search={{ from: job.id }}>
          Submit again
        </ButtonLink>
      </Group>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <pre className={`app-card ${classes.spec}`} tabIndex={0}>
        {text}
      </pre>
    </Stack>
  );
}
