import { Alert, Anchor, Button, Group, Kbd, Select, Stack, Text, Title } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import type { UseMutationResult } from "@tanstack/react-query";
import { type ReactNode, useEffect, useMemo, useState } from "react";
import { ApiError, type FieldProblem } from "../api/problem";
import type { Submission } from "../api/yaml";
import { CopyAs } from "../copy/copy-as";
import { submission } from "../copy/snippets";
import { clearDraft, readDraft, type SpecKind, writeDraft } from "../draft";
import { AlertIcon, CheckIcon } from "../ui/icons";
import { LinkedText } from "../ui/linked-text";
import { Problem } from "../ui/problem";
import type { Examples } from "./examples";
import { stillWrong } from "./locate";
import { SpecEditor } from "./spec-editor";
import classes from "./spec-form.module.css";
import { documentOf } from "./spec-text";

/** A text to begin with, and where it is from. */
export interface Copied {
  text: string;
  origin: string;
}

interface Props<Created, Checked> {
  draft: SpecKind;
  /** "New job". */
  title: string;
  /** Below the title: what to write. */
  hint: string;
  /** The editor's name for screen readers. */
  label: string;
  examples: Examples;
  copied?: Copied | undefined;
  create: UseMutationResult<Created, Error, Submission>;
  onCreated: (created: Created) => void;
  /** "Submit". */
  action: string;
  /** After "Ctrl + Enter": "submits". */
  effect: string;
  /** Why the user may not create anything; null: they may. */
  refused: string | null;
  /** "Could not submit the job". */
  failure: string;
  /** Fields beside the editor, which show the text and its problems, and change it. */
  fields?: (
    text: string,
    onChange: (text: string) => void,
    problems: readonly FieldProblem[],
  ) => ReactNode;
  /** What stands above the editor, and changes the text. */
  above?: (text: string, onChange: (text: string) => void) => ReactNode;
  /** A check that creates nothing; without it there is no button for it. */
  check?: {
    request: UseMutationResult<Checked, Error, string>;
    describe: (checked: Checked) => string;
    /** Whether a valid document is hardly what its author wants. */
    warns?: (checked: Checked) => boolean;
  };
}

/** What a request said about a text. */
type Outcome<Checked> =
  | { text: string; checked: Checked; error?: never }
  | { text: string; checked?: never; error: Error; of: "check" | "create" };

/** Without a change for so long, a text that was checked before is checked again. */
const PAUSE_MS = 600;
const NO_PROBLEMS: readonly FieldProblem[] = [];

/** A page on which a document is written in YAML and submitted. */
export function SpecForm<Created, Checked = never>(props: Props<Created, Checked>) {
  const { draft, examples, copied, create, refused, failure, check } = props;
  const [kept] = useState(() => (copied ? null : readDraft(draft)));
  const [isDraft, setIsDraft] = useState(kept !== null);
  const [initial] = useState(copied?.text ?? kept ?? examples[0].text);
  const [text, setText] = useState(initial);
  const [outcome, setOutcome] = useState<Outcome<Checked> | null>(null);
  const [key, setKey] = useState(randomKey);

  useEffect(() => {
    if (text === examples[0].text) clearDraft(draft);
    else if (text !== initial) writeDraft(draft, text);
  }, [draft, text, initial, examples]);

  const verify = (): void => {
    if (create.isPending) return;
    check?.request.mutate(text, {
      onSuccess: (checked) => setOutcome({ text, checked }),
      onError: (error) => setOutcome({ text, error, of: "check" }),
    });
  };
  const verifyLater = useDebouncedCallback(verify, PAUSE_MS);
  const send = (): void => {
    if (create.isPending || refused !== null) return;
    verifyLater.cancel();
    check?.request.reset();
    create.mutate(
      { text, key },
      {
        onSuccess: (created) => {
          clearDraft(draft);
          props.onCreated(created);
        },
        onError: (error) => {
          // Without a response it may have been created, so the next try has the same key.
          if (error instanceof ApiError && error.status !== 0) setKey(randomKey());
          setOutcome({ text, error, of: "create" });
        },
      },
    );
  };
  const discard = (): void => {
    setIsDraft(false);
    change(examples[0].text);
  };
  const change = (next: string): void => {
    setText(next);
    // Another text is another submission.
    setKey(randomKey());
    // What was checked once is kept up to date.
    if (outcome !== null) verifyLater();
  };

  const problems = useMemo(() => {
    const error = outcome?.error;
    return outcome && error instanceof ApiError
      ? stillWrong(error.fields, outcome.text, text)
      : NO_PROBLEMS;
  }, [outcome, text]);
  const checking = check?.request.isPending ?? false;
  const editor = (
    <SpecEditor
      label={props.label}
      value={text}
      onChange={change}
      onSubmit={send}
      problems={problems}
      problemTitle={outcome?.error instanceof ApiError ? outcome.error.title : ""}
    >
      {check && outcome?.checked !== undefined && outcome.text === text ? (
        <CheckOutcome
          text={check.describe(outcome.checked)}
          warns={check.warns?.(outcome.checked) ?? false}
        />
      ) : null}
      {outcome?.error && !hasFields(outcome.error) ? (
        <Problem
          error={outcome.error}
          what={outcome.of === "create" ? failure : "Could not check the spec"}
          onRetry={outcome.of === "create" ? send : verify}
        />
      ) : null}
    </SpecEditor>
  );

  return (
    <Stack gap="md" maw={props.fields ? 1280 : 920} mx="auto">
      <Group justify="space-between" align="flex-end">
        <div>
          <Title order={1} size="h3">
            {props.title}
          </Title>
          <Text size="sm" c="dimmed">
            {copied?.origin ?? props.hint}{" "}
            {isDraft ? (
              <>
                This is your draft.{" "}
                <Anchor component="button" type="button" size="sm" onClick={discard}>
                  Discard it
                </Anchor>
              </>
            ) : null}
          </Text>
        </div>
        <Select
          size="xs"
          w={200}
          aria-label="Start from an example"
          placeholder="Start from an example"
          data={examples.map(({ label, text: value }) => ({ value, label }))}
          value={null}
          onChange={(example) => {
            if (example !== null) change(example);
          }}
        />
      </Group>
      {refused === null ? null : (
        <Alert color="orange" variant="light" icon={<AlertIcon />}>
          {refused}
        </Alert>
      )}
      {props.above?.(text, change)}
      {props.fields ? (
        <Group align="flex-start" gap="lg">
          <div className={classes.fields}>{props.fields(text, change, problems)}</div>
          <Stack gap="md" className={classes.text}>
            {editor}
          </Stack>
        </Group>
      ) : (
        editor
      )}
      <Group justify="flex-end" gap="sm">
        <Text size="xs" c="dimmed" mr="auto" visibleFrom="sm">
          <Kbd size="xs">Ctrl</Kbd> + <Kbd size="xs">Enter</Kbd> {props.effect}
        </Text>
        <CopyAs
          snippets={() => submission(draft, window.location.origin, text, documentOf(text))}
        />
        {check ? (
          <Button variant="default" loading={checking} disabled={create.isPending} onClick={verify}>
            Check
          </Button>
        ) : null}
        <Button loading={create.isPending} disabled={refused !== null} onClick={send}>
          {props.action}
        </Button>
      </Group>
    </Stack>
  );
}

/** Whether an error names fields, which the editor marks. */
function hasFields(error: Error): boolean {
  return error instanceof ApiError && error.fields.length > 0;
}

function CheckOutcome({ text, warns }: { text: string; warns: boolean }) {
  return (
    <Alert
      color={warns ? "orange" : "teal"}
      variant="light"
      icon={warns ? <AlertIcon /> : <CheckIcon />}
      role={warns ? "alert" : "status"}
    >
      <LinkedText text={text} />
    </Alert>
  );
}

/** A random key; `crypto.randomUUID` is missing where the page is not served securely. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
