import { Code, Group, Stack, Text, Title } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import type { QueuePosition } from "@/client";
import { itemsOf } from "@/shared/api/pages";
import type { QueueEntry } from "@/shared/api/types";
import { count, plural, timeZone } from "@/shared/format";
import { useSampleTime } from "@/shared/now";
import { JobLink } from "@/shared/owners/job-link";
import { Owner } from "@/shared/owners/owner";
import { isNarrow } from "@/shared/owners/scope";
import { ScopeSwitch } from "@/shared/owners/scope-switch";
import { LoadMore } from "@/shared/page/load-more";
import { earlierPosition, PositionSteps } from "@/shared/queue-history";
import { type Column, Table } from "@/shared/table/table";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { LinkedText } from "@/shared/ui/linked-text";
import { AnchorLink } from "@/shared/ui/links";
import { Pending } from "@/shared/ui/problem";
import { Ago, Moment } from "@/shared/ui/time";
import { useQueue } from "./api/queue";
import classes from "./queue-page.module.css";
import { QuotaSection } from "./quotas";

const route = getRouteApi("/queue");

/** Jobs of other projects have no id; only one has a position at a time. */
const keyOf = ({ job_id, position }: QueueEntry) => job_id ?? `position ${position}`;

export default function QueuePage() {
  useTitle("Queue");
  const scope = route.useSearch();
  const navigate = route.useNavigate();
  const queue = useQueue(scope);
  const entries = itemsOf(queue.data, keyOf);
  const total = queue.data?.pages.at(-1)?.total ?? 0;
  return (
    <Stack gap="md">
      <Group gap="sm" align="baseline">
        <Title order={1} size="h3">
          Queue
        </Title>
        {total > 0 ? (
          <Text size="sm" c="dimmed" data-testid="waiting">
            {plural(total, "job")} waiting
            {entries.length < total ? `, first ${count(entries.length)} shown` : ""}
          </Text>
        ) : null}
        <AnchorLink to="/what-if" size="sm" ml="auto">
          What if there were more nodes?
        </AnchorLink>
      </Group>
      <ScopeSwitch scope={scope} onChange={(search) => void navigate({ search })} />
      <Pending query={queue} what="the queue" />
      {queue.data && entries.length === 0 && isNarrow(scope) ? (
        <Empty title="No waiting job matches">Choose other owners or projects.</Empty>
      ) : null}
      {queue.data && entries.length === 0 && !isNarrow(scope) ? (
        <Empty title="The queue is empty">
          No job waits. <Code>trainhall submit --dry-run</Code> shows when a new job would start.
        </Empty>
      ) : null}
      {entries.length > 0 ? <QueueTable entries={entries} /> : null}
      <LoadMore list={queue} />
      <QuotaSection />
    </Stack>
  );
}

const columnsIn = (zone: string): Column<QueueEntry>[] => [
  {
    id: "position",
    header: "#",
    right: true,
    className: classes.position,
    cell: (entry) => entry.position,
  },
  {
    id: "job",
    header: "Job",
    className: classes.job,
    cell: ({ job_id, name, needs, priority }) => (
      <>
        <Text size="sm" fw={job_id === null ? 400 : 600}>
          <JobLink id={job_id} name={name} />
        </Text>
        <Text size="xs" c="dimmed">
          {plural(needs.count, needs.device === "cpu" ? "CPU slot" : "GPU")}
          {priority === 0 ? "" : ` · priority ${priority}`}
        </Text>
      </>
    ),
  },
  {
    id: "owner",
    header: "Owner",
    className: classes.owner,
    cell: ({ user, project }) => (project === null ? null : <Owner of={{ user, project }} />),
  },
  {
    id: "history",
    header: "Position over time",
    className: classes.history,
    cell: ({ history, position }) =>
      history?.some((each) => each.position !== position) ? (
        <History history={history} position={position} />
      ) : null,
  },
  { id: "reason", header: "Waiting for", cell: ({ reason }) => <LinkedText text={reason} /> },
  {
    id: "start",
    header: `Expected start (${zone})`,
    className: classes.start,
    cell: (entry) => <ExpectedStart entry={entry} zone={zone} />,
  },
  {
    id: "queued",
    header: "Queued",
    className: classes.queued,
    cell: (entry) => <Ago value={entry.queued_at} />,
  },
];

function QueueTable({ entries }: { entries: QueueEntry[] }) {
  const zone = timeZone();
  const columns = useMemo(() => columnsIn(zone), [zone]);
  return (
    <Table
      label="Queue"
      columns={columns}
      rows={entries}
      rowKey={keyOf}
      className={classes.table}
      cards
      virtual
    />
  );
}

function History({ history, position }: { history: QueuePosition[]; position: number }) {
  const now = useSampleTime();
  return (
    <>
      <PositionSteps history={history} now={now} />
      <Text size="xs" c="dimmed">
        {earlierPosition(history, now, position)}
      </Text>
    </>
  );
}

function ExpectedStart({ entry, zone }: { entry: QueueEntry; zone: string }) {
  const { can_start, reason_code, earliest_start } = entry;
  if (!can_start) {
    return (
      <Text span inherit c="red">
        {reason_code === "quota_too_small" ? "never under its quota" : "never on this cluster"}
      </Text>
    );
  }
  return earliest_start ? (
    <Moment value={earliest_start} zone={zone} precision="minutes" />
  ) : (
    "unknown"
  );
}
