import { Button, Group, Kbd, Select, Stack, Text, Title } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { clearDraft, readDraft, writeDraft } from "@/shared/spec/draft";
import { SpecEditor } from "@/shared/spec/spec-editor";
import { specText } from "@/shared/spec/spec-text";
import { useTitle } from "@/shared/title";
import { Pending, Problem } from "@/shared/ui/problem";
import { useCreateExperiment, useExperiment } from "../api/experiments";
import { EXAMPLES, type ExampleName } from "./examples";

const route = getRouteApi("/experiments/new");

export default function NewExperimentPage() {
  useTitle("New experiment");
  const { from } = route.useSearch();
  if (from !== undefined) return <FromExperiment key={from} id={from} />;
  return <SpecForm key="new" initial={readDraft("experiment") ?? EXAMPLES.grid.text} />;
}

/** The spec of an experiment that is to be created again. */
function FromExperiment({ id }: { id: string }) {
  const query = useExperiment(id);
  if (!query.data) return <Pending query={query} what="the experiment to copy" height={420} />;
  return (
    <SpecForm
      initial={specText(query.data.spec)}
      origin={`Copied from ${query.data.name} (${id}).`}
    />
  );
}

function SpecForm({ initial, origin }: { initial: string; origin?: string }) {
  const [text, setText] = useState(initial);
  const [sent, setSent] = useState("");
  const navigate = route.useNavigate();
  const create = useCreateExperiment();

  useEffect(() => {
    if (text !== initial) writeDraft("experiment", text);
  }, [text, initial]);

  const send = (): void => {
    if (create.isPending) return;
    setSent(text);
    create.mutate(text, {
      onSuccess: ({ id }) => {
        clearDraft("experiment");
        void navigate({ to: "/experiments/$experimentId", params: { experimentId: id } });
      },
    });
  };

  return (
    <Stack gap="md" maw={920} mx="auto">
      <Group justify="space-between" align="flex-end">
        <div>
          <Title order={1} size="h3">
            New experiment
          </Title>
          <Text size="sm" c="dimmed">
            {origin ?? "Describe in YAML a job, the values to try, and the metric that rates them."}
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
        label="Experiment in YAML"
        value={text}
        onChange={setText}
        onSubmit={send}
        sent={sent}
        error={create.error}
      >
        {create.error ? (
          <Problem error={create.error} what="Could not create the experiment" onRetry={send} />
        ) : null}
      </SpecEditor>
      <Group justify="flex-end" gap="sm">
        <Text size="xs" c="dimmed" mr="auto" visibleFrom="sm">
          <Kbd size="xs">Ctrl</Kbd> + <Kbd size="xs">Enter</Kbd> creates it; every trial is checked
          before any starts
        </Text>
        <Button loading={create.isPending} onClick={send}>
          Create
        </Button>
      </Group>
    </Stack>
  );
}
