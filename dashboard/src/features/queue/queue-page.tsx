import { Code, Skeleton, Stack, Table, Text, Title } from "@mantine/core";
import { useQueue } from "@/shared/api/read-queue";
import type { QueueEntry } from "@/shared/api/types";
import { plural } from "@/shared/format";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { JobLinks } from "@/shared/ui/job-links";
import { AnchorLink } from "@/shared/ui/links";
import { Problem } from "@/shared/ui/problem";
import { Ago, Moment } from "@/shared/ui/time";
import classes from "./queue-page.module.css";

export default function QueuePage() {
  useTitle("Queue");
  const queue = useQueue(true);
  return (
    <Stack gap="md">
      <Title order={1} size="h3">
        Queue
      </Title>
      {queue.error ? (
        <Problem
          error={queue.error}
          what="The queue could not be read"
          onRetry={() => void queue.refetch()}
        />
      ) : null}
      {queue.isPending && !queue.error ? <Skeleton height={160} /> : null}
      {queue.data?.length === 0 ? (
        <Empty title="No job waits">
          Every job that was submitted has started. <Code>trainhall submit --dry-run</Code> tells
          when another one would.
        </Empty>
      ) : null}
      {queue.data?.length ? <QueueTable entries={queue.data} /> : null}
    </Stack>
  );
}

export function QueueTable({ entries }: { entries: QueueEntry[] }) {
  return (
    <Table.ScrollContainer minWidth={300}>
      <Table verticalSpacing="sm" className={classes.table ?? ""}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th className={classes.position ?? ""}>#</Table.Th>
            <Table.Th className={classes.job ?? ""}>Job</Table.Th>
            <Table.Th>Waits for</Table.Th>
            {/* What a job waits for says when it is expected, too. */}
            <Table.Th className={classes.time ?? ""} visibleFrom="sm">
              Expected
            </Table.Th>
            <Table.Th className={classes.time ?? ""} visibleFrom="sm">
              Queued
            </Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {entries.map((entry) => (
            <Row key={entry.job_id} entry={entry} />
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function Row({ entry }: { entry: QueueEntry }) {
  const device = entry.needs.device === "cpu" ? "CPU slot" : "GPU";
  return (
    <Table.Tr>
      <Table.Td className="numbers">{entry.position}</Table.Td>
      <Table.Td>
        <AnchorLink to="/jobs/$jobId" params={{ jobId: entry.job_id }}>
          {entry.name}
        </AnchorLink>
        <Text size="xs" c="dimmed">
          {plural(entry.needs.count, device)}
          {entry.priority === 0 ? "" : ` · priority ${entry.priority}`}
        </Text>
      </Table.Td>
      <Table.Td>
        <Text size="sm">
          <JobLinks text={entry.reason} />
        </Text>
      </Table.Td>
      <Table.Td visibleFrom="sm">
        {entry.earliest_start ? <Moment value={entry.earliest_start} /> : "not known"}
      </Table.Td>
      <Table.Td visibleFrom="sm">
        <Ago value={entry.queued_at} />
      </Table.Td>
    </Table.Tr>
  );
}
