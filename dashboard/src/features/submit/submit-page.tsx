import { Alert, Button, Group, Kbd, Select, Stack, Text, Title } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { useJob } from "@/shared/api/jobs";
import { ApiError } from "@/shared/api/problem";
import type { Outlook } from "@/shared/api/types";
import { clearDraft, readDraft, writeDraft } from "@/shared/spec/draft";
import { SpecEditor } from "@/shared/spec/spec-editor";
import { specText } from "@/shared/spec/spec-text";
import { useTitle } from "@/shared/title";
import { CheckIcon } from "@/shared/ui/icons";
import { Pending, Problem } from "@/shared/ui/problem";
import { randomKey, useCheckSpec, useSubmitJob } from "./api/submit-job";
import { copiedFrom } from "./copied-from";
import { EXAMPLES, type ExampleName } from "./examples";

const route = getRouteApi("/new");

export default function SubmitPage() {
  useTitle("New job");
  const { from } = route.useSearch();
  if (from === undefined)
    return <SpecForm key="new" initial={readDraft("job") ?? EXAMPLES.digits.text} />;
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
  const [asked, setAsked] = useState("");
  const [key, setKey] = useState(randomKey);
  const navigate = route.useNavigate();
  const check = useCheckSpec();
  const submit = useSubmitJob();

  useEffect(() => {
    if (text !== initial) writeDraft("job", text);
  }, [text, initial]);

  const error = submit.error ?? check.error;
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
          clearDraft("job");
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
    <Stack gap="md" maw={920} mx="auto">
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
      <SpecEditor
        label="Job spec in YAML"
        value={text}
        onChange={changed}
        onSubmit={send}
        sent={asked}
        error={error}
      >
        {submit.error ? (
          <Problem error={submit.error} what="Could not submit the job" onRetry={send} />
        ) : check.error ? (
          <Problem error={check.error} what="Could not check the spec" onRetry={checkSpec} />
        ) : check.isSuccess && text === asked ? (
          <Alert color="teal" variant="light" icon={<CheckIcon />} role="status">
            Valid. {outlookText(check.data.outlook)}
          </Alert>
        ) : null}
      </SpecEditor>
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
