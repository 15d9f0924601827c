import { Stack, Text } from "@mantine/core";
import type { Session } from "@/client";
import { itemsOf } from "@/shared/api/pages";
import { PageHeading } from "@/shared/page/heading";
import { commandsColumn, LoadedTable } from "@/shared/table/loaded-table";
import type { Column } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Command } from "@/shared/ui/command";
import { Empty } from "@/shared/ui/empty";
import { Ago, Moment } from "@/shared/ui/time";
import { useEndSession, useSessions } from "./api";
import { browserOf } from "./browsers";

export default function SessionsPage() {
  useTitle("Sessions");
  const list = useSessions();
  const sessions = itemsOf(list.data, ({ id }) => id);
  return (
    <Stack gap="md">
      <PageHeading title="Sessions" />
      <Text size="sm" c="dimmed">
        Browsers in which you are logged in. End those that you do not know.
      </Text>
      <LoadedTable
        list={list}
        rows={sessions}
        what="your sessions"
        empty={<Empty title="No sessions">You are logged in to no browser.</Empty>}
        label="Sessions"
        columns={COLUMNS}
        rowKey={({ id }) => id}
      />
    </Stack>
  );
}

const COLUMNS: Column<Session>[] = [
  {
    id: "client",
    header: "Browser",
    rowHeader: true,
    cell: ({ client, current }) => (
      <>
        <span title={client}>{browserOf(client)}</span>
        {current ? <p className="small dimmed">this browser</p> : null}
      </>
    ),
  },
  {
    id: "created",
    header: "Logged in",
    short: true,
    cell: ({ created_at }) => <Ago value={created_at} />,
  },
  { id: "used", header: "Last use", short: true, cell: ({ used_at }) => <Ago value={used_at} /> },
  {
    id: "expires",
    header: "Ends",
    short: true,
    cell: ({ expires_at }) => <Moment value={expires_at} precision="minutes" />,
  },
  commandsColumn((session) => <End session={session} />),
];

function End({ session: { id, client, current } }: { session: Session }) {
  const end = useEndSession();
  return (
    <Command
      label="End"
      name={`End the session in ${browserOf(client)}`}
      danger
      busy={end.isPending}
      refused={current ? "You use this one. Log out to end it." : null}
      onClick={() => end.mutate({ path: { session_id: id } })}
    />
  );
}
