import { Alert as Box, Button, Code, Group, Stack, Text } from "@mantine/core";
import { useState } from "react";
import { itemsOf } from "@/shared/api/pages";
import type { Alert } from "@/shared/api/types";
import { ConfirmedCommand } from "@/shared/dialogs/confirm";
import { useNotificationPermission } from "@/shared/live/notifications";
import { PageHeading } from "@/shared/page/heading";
import { LoadMore } from "@/shared/page/load-more";
import { type Column, Table } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Command } from "@/shared/ui/command";
import { Empty } from "@/shared/ui/empty";
import { PauseIcon, PlayIcon, PlusIcon, TrashIcon } from "@/shared/ui/icons";
import { Pending } from "@/shared/ui/problem";
import { StateBadge } from "@/shared/ui/state-badge";
import { AlertForm } from "./alert-form";
import classes from "./alerts-page.module.css";
import { useAlertCommands, useAlerts } from "./api/alerts";
import { conditionLabel, scopeText, stateOf, targetText } from "./conditions";
import { DeliveryLog } from "./deliveries";

type Opened = { form: Alert | undefined } | { log: Alert } | null;

export default function AlertsPage() {
  useTitle("Alerts");
  const list = useAlerts();
  const alerts = itemsOf(list.data, ({ id }) => id);
  const [opened, setOpened] = useState<Opened>(null);
  const close = () => setOpened(null);
  const add = (
    <Button size="xs" leftSection={<PlusIcon />} onClick={() => setOpened({ form: undefined })}>
      New alert
    </Button>
  );
  return (
    <Stack gap="md">
      <PageHeading title="Alerts">{add}</PageHeading>
      {alerts.some(({ target }) => target.kind === "browser") ? <Permission /> : null}
      <Pending query={list} what="the alerts" height={240} />
      {list.data && alerts.length === 0 ? (
        <Empty title="No alerts yet">
          <Stack align="center" gap="sm">
            <div>
              An alert sends a message by webhook, Slack, mail or to this browser when a job fails
              or waits too long, a node is down, a disk fills up … <Code>docs/alerts.md</Code>{" "}
              describes them.
            </div>
            {add}
          </Stack>
        </Empty>
      ) : null}
      {alerts.length > 0 ? (
        <Table
          label="Alerts"
          columns={columnsOf(setOpened)}
          rows={alerts}
          rowKey={({ id }) => id}
          className={classes.table}
          cards
        />
      ) : null}
      <LoadMore list={list} />
      {opened && "form" in opened ? <AlertForm alert={opened.form} onClose={close} /> : null}
      {opened && "log" in opened ? <DeliveryLog alert={opened.log} onClose={close} /> : null}
    </Stack>
  );
}

const columnsOf = (open: (opened: Opened) => void): Column<Alert>[] => [
  {
    id: "name",
    header: "Alert",
    width: "20%",
    cell: (alert) => (
      <Button variant="transparent" size="compact-sm" px={0} onClick={() => open({ form: alert })}>
        <Text span size="sm" fw={600} truncate title={`Change ${alert.name}`}>
          {alert.name}
        </Text>
      </Button>
    ),
  },
  {
    id: "on",
    header: "Reports",
    width: "24%",
    cell: (alert) => (
      <>
        <Text size="sm">{alert.on.map(conditionLabel).join(", ")}</Text>
        <Text size="xs" c="dimmed">
          {scopeText(alert)}
        </Text>
      </>
    ),
  },
  {
    id: "target",
    header: "Target",
    width: "22%",
    cell: (alert) => (
      <Text size="sm" className={classes.text ?? ""}>
        {targetText(alert)}
      </Text>
    ),
  },
  {
    id: "state",
    header: "State",
    width: "16%",
    cell: (alert) => (
      <>
        <StateBadge state={stateOf(alert)} />
        {alert.reason === "" ? null : (
          <Text size="xs" c="dimmed" mt={3} lineClamp={3} title={alert.reason}>
            {alert.reason}
          </Text>
        )}
      </>
    ),
  },
  {
    id: "commands",
    header: "Commands",
    hidden: true,
    right: true,
    cell: (alert) => <Commands alert={alert} onLog={() => open({ log: alert })} />,
  },
];

function Commands({ alert, onLog }: { alert: Alert; onLog: () => void }) {
  const { enable, test, remove, busy } = useAlertCommands(alert);
  const { name, enabled } = alert;
  return (
    <Group gap={4} justify="flex-end" wrap="nowrap">
      <Button size="compact-xs" variant="default" onClick={onLog} aria-label={`Log of ${name}`}>
        Log
      </Button>
      <Button
        size="compact-xs"
        variant="default"
        disabled={busy}
        onClick={test}
        aria-label={`Send a test message of ${name}`}
      >
        Test
      </Button>
      <Command
        label={enabled ? "Disable" : "Enable"}
        name={`${enabled ? "Disable" : "Enable"} ${name}`}
        icon={enabled ? <PauseIcon /> : <PlayIcon />}
        compact
        busy={busy}
        onClick={() => enable(!enabled)}
      />
      <ConfirmedCommand
        label="Delete"
        name={`Delete ${name}`}
        icon={<TrashIcon />}
        compact
        busy={busy}
        title={`Delete ${name}?`}
        text="Messages that were not delivered are not sent any more. The log is deleted, too."
        action="Delete the alert"
        onConfirm={remove}
      />
    </Group>
  );
}

/** Asks for the permission to show notifications, as long as this browser has not decided. */
function Permission() {
  const { permission, ask } = useNotificationPermission();
  if (permission === "granted") return null;
  const text =
    permission === "default"
      ? "This browser does not show notifications yet."
      : permission === "denied"
        ? "This browser blocks notifications; its settings of this site allow them again."
        : "This browser shows no notifications on this address; use https or localhost.";
  return (
    <Box variant="light" color="gray" p="xs">
      <Group justify="space-between">
        <Text size="sm">{text}</Text>
        {permission === "default" ? (
          <Button size="xs" variant="default" onClick={ask}>
            Allow notifications
          </Button>
        ) : null}
      </Group>
    </Box>
  );
}
