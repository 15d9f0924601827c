import type { NodeEvent } from "@/shared/api/types";
import { timeZone } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";
import { Pending } from "@/shared/ui/problem";
import { StateBadge } from "@/shared/ui/state-badge";
import { Moment } from "@/shared/ui/time";
import { useNodeEvents } from "./api/nodes";
import classes from "./nodes.module.css";

const columns = (zone: string): Column<NodeEvent>[] => [
  {
    id: "time",
    header: `Time (${zone})`,
    cell: (event) => <Moment value={event.time} zone={zone} />,
  },
  { id: "state", header: "State", cell: (event) => <StateBadge state={event.state} /> },
  { id: "reason", header: "Reason", cell: (event) => event.reason },
];

/** The history of a node, the newest first: its states, and what users did to it. */
export function NodeEvents({ id, name }: { id: string; name: string }) {
  const events = useNodeEvents(id);
  if (!events.data) return <Pending query={events} what="the events" height={60} />;
  const { items } = events.data;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <section className={classes.events} aria-label={`History of ${name}`} tabIndex={0}>
      <Table
        label={`Events of ${name}`}
        columns={columns(timeZone())}
        rows={items.toReversed()}
        // Two events may be equal, and none is ever removed.
        bare
        rowKey={(event) => items.indexOf(event)}
      />
    </section>
  );
}
