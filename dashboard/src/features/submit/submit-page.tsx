import { Alert, Button, Group, Kbd, Select, Stack, Text, Title } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useMemo, useRef, useState } from "react";
import { useJob } from "@/shared/api/jobs";
import { ApiError } from "@/shared/api/problem";
import type { Outlook } from "@/shared/api/types";
import { specText } from "@/shared/spec-text";
import { useTitle } from "@/shared/title";
import { CheckIcon } from "@/shared/ui/icons";
import { Pending, Problem } from "@/shared/ui/problem";
import { randomKey, useCheckSpec, useSubmitJob } from "./api/submit-job";
import { copiedFrom } from "./copied-from";
import { clearDraft, readDraft, writeDraft } from "./draft";
import { Editor, type EditorHandle } from "./editor";
import { EXAMPLES, type ExampleName } from "./examples";
import { locate } from "./locate";
import classes from "./submit-page.module.css";

const route = getRouteApi("/new");

export default function SubmitPage() {
  useTitle("New job");
  const { from } = route.useSearch();
  if (from === undefined)
    return <SpecForm key="new" initial={readDraft() ?? EXAMPLES.digits.text} />;
  return <FromJob key={from} id={from} />;
}

/** The spec of a job that is to be submitted again. */
function FromJob({ id }: { id: string }) {
  const job = useJob(id);
  if (job.data) return <SpecForm initial={specText(job.data.spec)} origin={copiedFrom(job.data)} />;
  return <Pending query={job} what="the job to copy" height={420} />;
}

function SpecForm({ initial, origin }: { initial: string; origin?: string }) {
  const [text, setText] = useState(initial);
  // The text that was sent last: its errors are marked only while the text is unchanged.
  const [asked, setAsked] = useState("");
  const [key, setKey] = useState(randomKey);
  const navigate = route.useNavigate();
  const check = useCheckSpec();
  const submit = useSubmitJob();
  const editor = useRef<EditorHandle>(null);

  useEffect(() => {
    if (text !== initial) writeDraft(text);
  }, [text, initial]);

  const error = submit.error ?? check.error;
  const fields = error instanceof ApiError ? error.fields : null;
  const located = useMemo(() => (fields ? locate(asked, fields) : []), [fields, asked]);
  const marks = text === asked ? located : [];
  const busy = check.isPending || submit.isPending;

  const begin = (): void => {
    check.reset();
    submit.reset();
    setAsked(text);
  };
  const checkSpec = (): void => {
    if (busy) return;
    begin();
    check.mutate(text);
  };
  const send = (): void => {
    if (busy) return;
    begin();
    submit.mutate(
      { text, key },
      {
        onSuccess: (job) => {
          clearDraft();
          void navigate({ to: "/jobs/$jobId", params: { jobId: job.id } });
        },
        onError: (failure) => {
          // Without a response the job may have been created, so the next try has the same key.
          if (failure instanceof ApiError && failure.status !== 0) setKey(randomKey());
        },
      },
    );
  };

  return (
    <Stack gap="md" className={classes.page ?? ""}>
      <Group justify="space-between" align="flex-end">
        <div>
          <Title order={1} size="h3">
            New job
          </Title>
          <Text size="sm" c="dimmed">
            {origin ?? "Describe the job in YAML."}
          </Text>
        </div>
        <Select
          size="xs"
          w={200}
          aria-label="Start from an example"
          placeholder="Start from an example"
          data={Object.entries(EXAMPLES).map(([value, { label }]) => ({ value, label }))}
          value={null}
          onChange={(name) => {
            if (name !== null) setText(EXAMPLES[name as ExampleName].text);
          }}
        />
      </Group>
      <div className={`app-card ${classes.editor}`} data-wrong={marks.length > 0 || undefined}>
        <Editor value={text} onChange={changed} problems={marks} onSubmit={send} handle={editor} />
      </div>
      <div aria-live="polite">
        {fields && fields.length > 0 ? (
          <Alert
            color="red"
            variant="light"
            title={error instanceof ApiError ? error.title : ""}
            role="alert"
          >
            <ul className={classes.problems}>
              {located.map((problem) => (
                <li key={`${problem.field} ${problem.message}`}>
                  <button
                    type="button"
                    className={classes.problem}
                    onClick={() => editor.current?.goTo(problem.from)}
                  >
                    <span className={classes.line}>line {problem.line}</span>
                    {problem.field ? <code>{problem.field}</code> : null} {problem.message}
                  </button>
                </li>
              ))}
            </ul>
          </Alert>
        ) : submit.error ? (
          <Problem error={submit.error} what="Could not submit the job" onRetry={send} />
        ) : check.error ? (
          <Problem error={check.error} what="Could not check the spec" onRetry={checkSpec} />
        ) : check.isSuccess && text === asked ? (
          <Alert color="teal" variant="light" icon={<CheckIcon />} role="status">
            Valid. {outlookText(check.data.outlook)}
          </Alert>
        ) : null}
      </div>
      <Group justify="flex-end" gap="sm">
        <Text size="xs" c="dimmed" mr="auto" visibleFrom="sm">
          <Kbd size="xs">Ctrl</Kbd> + <Kbd size="xs">Enter</Kbd> submits
        </Text>
        <Button
          variant="default"
          loading={check.isPending}
          disabled={submit.isPending}
          onClick={checkSpec}
        >
          Check
        </Button>
        <Button loading={submit.isPending} disabled={check.isPending} onClick={send}>
          Submit
        </Button>
      </Group>
    </Stack>
  );

  function changed(next: string): void {
    setText(next);
    // Another text is another submission.
    setKey(randomKey());
  }
}

/** When the checked job would start. */
function outlookText({ when, position, reason }: Outlook): string {
  if (when === "now") return `It would start now, ${reason}.`;
  if (when === "never") return `It could never start on this cluster: ${reason}.`;
  return `It would be number ${position} in the queue: ${reason}.`;
}
