import { Skeleton } from "@mantine/core";
import { Problem } from "@/shared/ui/problem";
import { StateBadge } from "@/shared/ui/state-badge";
import { Moment } from "@/shared/ui/time";
import { useNodeEvents } from "./api/list-node-events";
import classes from "./nodes.module.css";

/** What became of a node, the newest first: its states and what users wanted of it. */
export function NodeEvents({ id, name }: { id: string; name: string }) {
  const events = useNodeEvents(id);
  if (events.error) return <Problem error={events.error} what="The events could not be read" />;
  if (!events.data) return <Skeleton height={60} />;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <section className={classes.events} aria-label={`What became of ${name}`} tabIndex={0}>
      <table className="app-table" aria-label={`Events of ${name}`}>
        <thead>
          <tr>
            <th scope="col">Time</th>
            <th scope="col">State</th>
            <th scope="col">Reason</th>
          </tr>
        </thead>
        <tbody>
          {events.data.toReversed().map(({ time, state, reason }, at) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: two events may be equal, and none moves
            <tr key={events.data.length - at}>
              <td>
                <Moment value={time} />
              </td>
              <td>
                <StateBadge state={state} />
              </td>
              <td>{reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
