import { Button, Code, Group, Skeleton, Stack, Text, Title } from "@mantine/core";
import { useQueue } from "@/shared/api/read-queue";
import type { QueueEntry } from "@/shared/api/types";
import { count, plural } from "@/shared/format";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { AnchorLink } from "@/shared/ui/links";
import { Problem } from "@/shared/ui/problem";
import { Ago, UtcTime } from "@/shared/ui/time";
import { Told } from "@/shared/ui/told";
import classes from "./queue-page.module.css";
import { QuotaSection } from "./quotas";

export default function QueuePage() {
  useTitle("Queue");
  const queue = useQueue();
  const pages = queue.data?.pages ?? [];
  const entries = unique(pages.flatMap((page) => page.items));
  const total = pages.at(-1)?.total ?? 0;
  return (
    <Stack gap="md">
      <Group gap="sm" align="baseline">
        <Title order={1} size="h3">
          Queue
        </Title>
        {total > 0 ? (
          <Text size="sm" c="dimmed" data-testid="waiting">
            {total === 1 ? "1 job waits" : `${count(total)} jobs wait`}
            {entries.length < total ? `, the first ${count(entries.length)} are shown` : ""}
          </Text>
        ) : null}
      </Group>
      {queue.error ? (
        <Problem
          error={queue.error}
          what="The queue could not be read"
          onRetry={() => void queue.refetch()}
        />
      ) : null}
      {queue.isPending && !queue.error ? <Skeleton height={160} /> : null}
      {queue.data && entries.length === 0 ? (
        <Empty title="No job waits">
          Every job that was submitted has started. <Code>trainhall submit --dry-run</Code> tells
          when another one would.
        </Empty>
      ) : null}
      {entries.length > 0 ? <QueueTable entries={entries} /> : null}
      {queue.hasNextPage ? (
        <Button
          variant="default"
          size="xs"
          loading={queue.isFetchingNextPage}
          onClick={() => void queue.fetchNextPage()}
          style={{ alignSelf: "center" }}
        >
          Later jobs
        </Button>
      ) : null}
      <QuotaSection />
    </Stack>
  );
}

/** Pages are read one after the other, and a job that comes back may stand on two of them. */
function unique(entries: QueueEntry[]): QueueEntry[] {
  return [...new Map(entries.map((entry) => [entry.job_id, entry])).values()];
}

function QueueTable({ entries }: { entries: QueueEntry[] }) {
  return (
    <div className="app-card">
      <table className={`app-table ${classes.table}`} aria-label="Queue">
        <thead>
          <tr>
            <th scope="col" className={`right ${classes.position}`}>
              #
            </th>
            <th scope="col" className={classes.job}>
              Job
            </th>
            <th scope="col">Waits for</th>
            <th scope="col" className={classes.time}>
              Expected
            </th>
            <th scope="col" className={classes.time}>
              Queued
            </th>
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <Row key={entry.job_id} entry={entry} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ entry }: { entry: QueueEntry }) {
  const device = entry.needs.device === "cpu" ? "CPU slot" : "GPU";
  return (
    <tr>
      <td className="right">{entry.position}</td>
      <td>
        <AnchorLink to="/jobs/$jobId" params={{ jobId: entry.job_id }}>
          {entry.name}
        </AnchorLink>
        <Text size="xs" c="dimmed">
          {plural(entry.needs.count, device)}
          {entry.priority === 0 ? "" : ` · priority ${entry.priority}`}
        </Text>
      </td>
      <td>
        <Told text={entry.reason} />
      </td>
      <td className={classes.time}>
        {entry.earliest_start ? <UtcTime value={entry.earliest_start} /> : "not known"}
      </td>
      <td className={classes.time}>
        <Ago value={entry.queued_at} />
      </td>
    </tr>
  );
}
