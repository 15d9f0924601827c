import { Tooltip } from "@mantine/core";
import type { ClusterNode } from "@/shared/api/types";
import { percent } from "@/shared/format";
import { StateBadge } from "@/shared/ui/state-badge";
import { DeviceLines, DeviceStrip } from "./device-strip";
import { NodeCard } from "./node-card";
import { summed } from "./node-sums";
import type { NodeListProps } from "./node-table";
import classes from "./nodes.module.css";

/** A tile a node, so that 64 nodes fit on a screen; an opened node takes the whole width. */
export function NodeGrid({ nodes, opened, onOpen, onClose }: NodeListProps) {
  return (
    <ul className={classes.grid} aria-label="Nodes">
      {nodes.map((node) => {
        const isOpen = opened.includes(node.name);
        return (
          <li key={node.id} data-node={node.name} data-open={isOpen || undefined}>
            {isOpen ? (
              <NodeCard node={node} onClose={() => onClose(node.name)} />
            ) : (
              <Tile node={node} onOpen={() => onOpen(node.name)} />
            )}
          </li>
        );
      })}
    </ul>
  );
}

function Tile({ node, onOpen }: { node: ClusterNode; onOpen: () => void }) {
  const { name, state, reason, devices } = node;
  const lines = (
    <>
      {state === "ready" ? null : <div>{reason}</div>}
      <DeviceLines devices={devices} />
    </>
  );
  return (
    <Tooltip
      label={lines}
      openDelay={200}
      multiline
      maw={360}
      events={{ hover: true, focus: true, touch: false }}
    >
      <button
        type="button"
        className={`app-card ${classes.node} mantine-focus-auto`}
        aria-expanded={false}
        data-opener={name}
        onClick={onOpen}
      >
        <span className={classes.title}>{name}</span>
        {state === "ready" ? (
          <span className="small dimmed numbers">
            {percent(summed(devices).utilization)}
            <span className="sr-only"> utilization</span>
          </span>
        ) : (
          <StateBadge state={state} />
        )}
        <DeviceStrip devices={devices} />
      </button>
    </Tooltip>
  );
}
