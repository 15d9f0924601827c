import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { QueuePosition } from "@/client";
import { readQueueHistoryOptions } from "@/client/@tanstack/react-query.gen";
import type { Job } from "@/shared/api/types";
import { count, duration } from "@/shared/format";
import { PositionSteps } from "@/shared/queue-history";
import { type Column, Table } from "@/shared/table/table";
import { Moment } from "@/shared/ui/time";
import classes from "./timeline.module.css";

/** How often the coordinator stores positions. */
const POLL_MS = 10_000;

interface Props {
  job: Job;
  /** The current time in milliseconds. */
  now: number;
  /** The time zone that the tab names. */
  zone: string;
}

/** The places in the queue that the job had, and for how long; nothing if it did not wait. */
export function QueueHistory({ job, now, zone }: Props) {
  const waits = job.state === "queued" || job.state === "recovering";
  const history = useQuery({
    ...readQueueHistoryOptions({ path: { job_id: job.id } }),
    // Once more after it has started, which ends its last position.
    refetchInterval: ({ state }) =>
      waits || state.data?.items.at(-1)?.until === null ? POLL_MS : false,
  });
  const items = history.data?.items ?? [];
  const [first, last] = [items[0], items.at(-1)];
  if (first === undefined || last === undefined) return null;
  const seconds = items.reduce((sum, item) => sum + secondsAt(item, now), 0);
  const isSame = items.every(({ position }) => position === first.position);
  const end = last.until === null ? now : Date.parse(last.until);
  return (
    <section className={`app-card ${classes.queue}`} aria-label="Position in the queue">
      {isSame ? null : <PositionSteps history={items} now={end} width={480} height={48} />}
      <details>
        <Text component="summary" size="sm">
          {waits ? "Waiting" : "Waited"} for {duration(seconds)}: position {count(first.position)}{" "}
          {isSame ? "all along" : `at first, ${waits ? "now" : "at last"} ${count(last.position)}`}
        </Text>
        <Table
          label="Positions in the queue"
          columns={columnsIn(zone, now)}
          rows={items}
          rowKey={(item) => item.since}
          bare
        />
      </details>
    </section>
  );
}

function secondsAt({ since, until }: QueuePosition, now: number): number {
  const end = until === null ? now : Date.parse(until);
  return Math.max(0, (end - Date.parse(since)) / 1000);
}

const columnsIn = (zone: string, now: number): Column<QueuePosition>[] => [
  { id: "position", header: "Position", right: true, cell: ({ position }) => count(position) },
  { id: "for", header: "For", right: true, cell: (item) => duration(secondsAt(item, now)) },
  {
    id: "since",
    header: "Since",
    cell: ({ since }) => <Moment value={since} zone={zone} />,
  },
];
