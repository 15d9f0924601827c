import { Code, Text, Textarea } from "@mantine/core";
import { useState } from "react";
import type { Secret } from "@/client";
import { ConfirmedCommand } from "../dialogs/confirm";
import { NameInput } from "../dialogs/name-input";
import { RequestDialog } from "../dialogs/request-dialog";
import { Section } from "../page/section";
import { commandsColumn, LoadedTable } from "../table/loaded-table";
import type { Column } from "../table/table";
import { Command } from "../ui/command";
import { PlusIcon, TrashIcon } from "../ui/icons";
import { Ago } from "../ui/time";
import { useSecretCommands, useSecrets } from "./api";

interface Props {
  /** Null: the user's own. */
  project: string | null;
  /** Why the user may not see the names; null: they may. */
  hidden?: string | null;
  /** Why the user may not change them; null: they may. */
  refused?: string | null;
}

/** The secrets that are set: their names, never their values. */
export function Secrets({ project, hidden = null, refused = null }: Props) {
  const secrets = useSecrets(project, hidden === null);
  const [name, setName] = useState<string | null>(null);
  return (
    <Section
      title="Secrets"
      command={
        <Command
          label="Set a secret"
          icon={<PlusIcon />}
          refused={refused}
          onClick={() => setName("")}
        />
      }
    >
      <Text size="xs" c="dimmed" mb="xs">
        {project === null
          ? "Your jobs get those that their spec names in "
          : "Jobs of the project get those that their spec names in "}
        <Code>secrets</Code>, as environment variables.{" "}
        {project === null
          ? "They come before a project’s of the same name."
          : "All who may submit to the project can read them by a job."}
      </Text>
      {hidden === null ? (
        <LoadedTable
          list={secrets}
          rows={secrets.data}
          what="the secrets"
          empty={
            <Text size="sm" c="dimmed">
              No secrets.
            </Text>
          }
          label="Secrets"
          columns={columnsOf(project, refused, setName)}
          rowKey={(secret) => secret.name}
        />
      ) : (
        <Text size="sm" c="dimmed">
          {hidden}
        </Text>
      )}
      {name === null ? null : (
        <SetSecret project={project} known={name} onClose={() => setName(null)} />
      )}
    </Section>
  );
}

const columnsOf = (
  project: string | null,
  refused: string | null,
  change: (name: string) => void,
): Column<Secret>[] => [
  { id: "name", header: "Name", rowHeader: true, cell: ({ name }) => <b>{name}</b> },
  { id: "set", header: "Set", short: true, cell: ({ updated_at }) => <Ago value={updated_at} /> },
  ...(project === null
    ? []
    : [{ id: "by", header: "By", short: true, cell: ({ updated_by }: Secret) => updated_by }]),
  commandsColumn(({ name }) => (
    <>
      <Command
        label="Replace"
        name={`Replace ${name}`}
        refused={refused}
        onClick={() => change(name)}
      />{" "}
      <Remove project={project} name={name} refused={refused} />
    </>
  )),
];

interface RemoveProps {
  project: string | null;
  name: string;
  refused: string | null;
}

function Remove({ project, name, refused }: RemoveProps) {
  const { remove } = useSecretCommands(project);
  return (
    <ConfirmedCommand
      label="Remove"
      name={`Remove ${name}`}
      icon={<TrashIcon />}
      compact
      busy={remove.isPending}
      refused={refused}
      title={`Remove ${name}?`}
      text="Jobs that run keep it. Jobs that need it and start later fail."
      action="Remove secret"
      onConfirm={() => remove.mutate(name)}
    />
  );
}

interface SetProps {
  project: string | null;
  /** The name of one that is replaced; empty: a new one. */
  known: string;
  onClose: () => void;
}

function SetSecret({ project, known, onClose }: SetProps) {
  const { set } = useSecretCommands(project);
  const [text, setText] = useState(known);
  const [value, setValue] = useState("");
  const name = text.trim();
  return (
    <RequestDialog
      title={known === "" ? "Set a secret" : `Replace ${known}`}
      action="Set secret"
      request={set}
      body={name === "" || value === "" ? null : { name, value }}
      failure="Could not set the secret"
      onClose={onClose}
    >
      <NameInput
        description="The environment variable, such as HF_TOKEN"
        value={text}
        onChange={setText}
        disabled={known !== ""}
      />
      <Textarea
        label="Value"
        description="It is stored encrypted, and is never shown again."
        rows={3}
        autoComplete="off"
        spellCheck={false}
        value={value}
        onChange={({ currentTarget }) => setValue(currentTarget.value)}
        {...(known === "" ? {} : { "data-autofocus": true })}
      />
    </RequestDialog>
  );
}
