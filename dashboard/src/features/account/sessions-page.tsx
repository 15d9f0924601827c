import { Stack, Text } from "@mantine/core";
import type { Session } from "@/client";
import { itemsOf } from "@/shared/api/pages";
import { PageHeading } from "@/shared/page/heading";
import { LoadMore } from "@/shared/page/load-more";
import stacked from "@/shared/table/stacked.module.css";
import { type Column, Table } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Command } from "@/shared/ui/command";
import { Empty } from "@/shared/ui/empty";
import { Pending } from "@/shared/ui/problem";
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
      <Pending query={list} what="your sessions" height={160} />
      {list.data && sessions.length === 0 ? (
        <Empty title="No sessions">You are logged in to no browser.</Empty>
      ) : null}
      {sessions.length > 0 ? (
        <Table
          label="Sessions"
          columns={COLUMNS}
          rows={sessions}
          rowKey={({ id }) => id}
          className={stacked.stacked}
          cards
        />
      ) : null}
      <LoadMore list={list} />
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
    cell: ({ created_at }) => <Ago value={created_at} />,
  },
  { id: "used", header: "Last use", cell: ({ used_at }) => <Ago value={used_at} /> },
  {
    id: "expires",
    header: "Ends",
    cell: ({ expires_at }) => <Moment value={expires_at} precision="minutes" />,
  },
  {
    id: "commands",
    header: "Commands",
    hidden: true,
    right: true,
    cell: (session) => <End session={session} />,
  },
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
