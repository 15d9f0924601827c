import { Modal, Stack, Text } from "@mantine/core";
import { itemsOf } from "@/shared/api/pages";
import type { Alert, Delivery } from "@/shared/api/types";
import { LoadMore } from "@/shared/page/load-more";
import { type Column, Table } from "@/shared/table/table";
import { LinkedText } from "@/shared/ui/linked-text";
import { Pending } from "@/shared/ui/problem";
import { StateBadge } from "@/shared/ui/state-badge";
import { Ago } from "@/shared/ui/time";
import classes from "./alerts-page.module.css";
import { useDeliveries } from "./api/alerts";
import { conditionLabel } from "./conditions";

/** The messages of an alert, and what became of each. */
export function DeliveryLog({ alert, onClose }: { alert: Alert; onClose: () => void }) {
  const list = useDeliveries(alert.id);
  const deliveries = itemsOf(list.data, ({ id }) => id);
  return (
    <Modal opened onClose={onClose} title={`Messages of ${alert.name}`} size="xl">
      <Stack gap="md">
        <Pending query={list} what="the messages" />
        {list.data && deliveries.length === 0 ? (
          <Text size="sm" c="dimmed">
            No messages yet. “Send a test message” tries out the target.
          </Text>
        ) : null}
        {deliveries.length > 0 ? (
          <Table
            label={`Messages of ${alert.name}`}
            columns={COLUMNS}
            rows={deliveries}
            rowKey={({ id }) => id}
            className={classes.log}
            bare
            cards
          />
        ) : null}
        <LoadMore list={list} />
      </Stack>
    </Modal>
  );
}

const COLUMNS: Column<Delivery>[] = [
  { id: "time", header: "Time", width: "14%", cell: (each) => <Ago value={each.created_at} /> },
  {
    id: "state",
    header: "State",
    width: "24%",
    cell: ({ state, tries, status, error, next_try_at }) => (
      <>
        <StateBadge state={state} />
        <Text size="xs" c="dimmed" mt={3}>
          {outcome(tries, status, error)}
          {next_try_at !== null && tries > 0 ? " · will be tried again" : ""}
        </Text>
      </>
    ),
  },
  {
    id: "message",
    header: "Message",
    cell: ({ condition, text }) => (
      <>
        <Text size="xs" c="dimmed">
          {conditionLabel(condition)}
        </Text>
        <Text size="sm" className={classes.text ?? ""}>
          <LinkedText text={text} />
        </Text>
      </>
    ),
  },
];

function outcome(tries: number, status: number | null, error: string | null): string {
  const answer = error ?? (status === null ? "" : `HTTP ${status}`);
  const counted = tries > 1 ? `${tries} tries` : "";
  return [counted, answer].filter(Boolean).join(": ");
}
