import { Group, Stack } from "@mantine/core";
import { type ReactNode, useMemo } from "react";
import { CopyAs } from "../copy/copy-as";
import { CopyButton } from "../copy/copy-button";
import { submission } from "../copy/snippets";
import type { SpecKind } from "../draft";
import { documentOf, specText } from "./spec-text";
import classes from "./spec-view.module.css";

interface Props {
  of: SpecKind;
  spec: Record<string, unknown>;
  /** The button that submits the spec again. */
  children: ReactNode;
}

/** A submitted spec with its defaults. */
export function SpecView({ of, spec, children }: Props) {
  const text = useMemo(() => specText(spec), [spec]);
  return (
    <Stack gap="sm">
      <Group justify="flex-end" gap="xs">
        <CopyButton value={text} label="Copy" />
        <CopyAs snippets={() => submission(of, window.location.origin, text, documentOf(text))} />
        {children}
      </Group>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <pre className={`app-card ${classes.spec}`} tabIndex={0}>
        {text}
      </pre>
    </Stack>
  );
}
