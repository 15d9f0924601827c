import { Alert, Button, Code, Group, Modal, Stack, Text } from "@mantine/core";
import { useState } from "react";
import type { ApiToken } from "@/client";
import { useMe } from "@/shared/api/login";
import { itemsOf } from "@/shared/api/pages";
import { CopyButton } from "@/shared/copy/copy-button";
import { ConfirmedCommand } from "@/shared/dialogs/confirm";
import { PageHeading } from "@/shared/page/heading";
import { commandsColumn, LoadedTable } from "@/shared/table/loaded-table";
import type { Column } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { AlertIcon, PlusIcon } from "@/shared/ui/icons";
import { Ago, Moment } from "@/shared/ui/time";
import { useTokenCommands, useTokens } from "./api";
import { reachText } from "./reach";
import { TokenForm } from "./token-form";

export default function TokensPage() {
  useTitle("API tokens");
  const list = useTokens();
  const tokens = itemsOf(list.data, ({ id }) => id);
  const [creating, setCreating] = useState(false);
  const [created, setCreated] = useState<string | null>(null);
  return (
    <Stack gap="md">
      <PageHeading title="API tokens">
        <Button size="xs" leftSection={<PlusIcon />} onClick={() => setCreating(true)}>
          New token
        </Button>
      </PageHeading>
      <Text size="sm" c="dimmed">
        A program sends a token instead of a login, as <Code>TRAINHALL_TOKEN</Code> or{" "}
        <Code>Authorization: Bearer TOKEN</Code>. It may do what you may, or less.
      </Text>
      <LoadedTable
        list={list}
        rows={tokens}
        what="your API tokens"
        empty={<Empty title="No API tokens">Create one for a program, a notebook or CI.</Empty>}
        label="API tokens"
        columns={COLUMNS}
        rowKey={({ id }) => id}
      />
      {creating ? (
        <TokenForm
          onClose={() => setCreating(false)}
          onCreated={(token) => {
            setCreating(false);
            setCreated(token);
          }}
        />
      ) : null}
      {created === null ? null : <Created token={created} onClose={() => setCreated(null)} />}
    </Stack>
  );
}

/** A new token: the only time that it is shown. */
function Created({ token, onClose }: { token: string; onClose: () => void }) {
  return (
    <Modal
      opened
      onClose={onClose}
      title="Token created"
      size="lg"
      centered
      closeOnClickOutside={false}
    >
      <Stack gap="sm">
        <Alert color="orange" icon={<AlertIcon />} title="Copy it now">
          It is not shown again.
        </Alert>
        <Code block style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>
          {token}
        </Code>
        <Group justify="space-between">
          <CopyButton value={token} label="Copy token" />
          <Button size="xs" onClick={onClose}>
            Done
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}

const COLUMNS: Column<ApiToken>[] = [
  { id: "name", header: "Token", rowHeader: true, cell: ({ name }) => <b>{name}</b> },
  { id: "reach", header: "Allows", cell: (token) => <Reach token={token} /> },
  {
    id: "created",
    header: "Created",
    short: true,
    cell: ({ created_at }) => <Ago value={created_at} />,
  },
  {
    id: "used",
    header: "Last use",
    short: true,
    cell: ({ used_at }) => (used_at === null ? "never" : <Ago value={used_at} />),
  },
  {
    id: "expires",
    header: "Expires",
    short: true,
    cell: ({ expires_at }) =>
      expires_at === null ? "never" : <Moment value={expires_at} precision="minutes" />,
  },
  commandsColumn((token) => <Revoke token={token} />),
];

function Reach({ token }: { token: ApiToken }) {
  const me = useMe().data;
  return reachText(token, me?.user ?? "you");
}

function Revoke({ token: { id, name } }: { token: ApiToken }) {
  const { revoke } = useTokenCommands();
  return (
    <ConfirmedCommand
      label="Revoke"
      name={`Revoke ${name}`}
      busy={revoke.isPending}
      title={`Revoke ${name}?`}
      text="Programs that use it are refused from now on."
      action="Revoke token"
      onConfirm={() => revoke.mutate({ path: { token_id: id } })}
    />
  );
}
