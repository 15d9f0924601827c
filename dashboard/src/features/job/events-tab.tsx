import { Skeleton, Text } from "@mantine/core";
import type { JobLive } from "@/shared/live/job-live";
import { useSignal } from "@/shared/live/signal";
import { StateBadge } from "@/shared/ui/state-badge";
import { Moment } from "@/shared/ui/time";

/** What happened, the newest first. */
export function EventsTab({ live }: { live: JobLive }) {
  const events = useSignal(live.events);
  if (events.length === 0) return <Skeleton height={160} />;
  return (
    <div className="app-card">
      <table className="app-table" aria-label="Events">
        <thead>
          <tr>
            <th scope="col" style={{ width: 170 }}>
              Time
            </th>
            <th scope="col" style={{ width: 140 }}>
              Kind
            </th>
            <th scope="col">What happened</th>
            <th scope="col" className="right" style={{ width: 80 }}>
              Attempt
            </th>
            <th scope="col" className="right" style={{ width: 80 }}>
              Seq
            </th>
          </tr>
        </thead>
        <tbody>
          {events.toReversed().map((event) => (
            <tr key={event.seq} data-seq={event.seq}>
              <td>
                <Moment value={event.time} />
              </td>
              <td>
                {event.kind === "state" && typeof event.data.state === "string" ? (
                  <StateBadge state={event.data.state} />
                ) : (
                  event.kind
                )}
              </td>
              <td style={{ overflowWrap: "anywhere" }}>{event.reason}</td>
              <td className="right">{event.attempt ?? ""}</td>
              <td className="right">
                <Text span size="xs" c="dimmed" className="numbers">
                  {event.seq}
                </Text>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
