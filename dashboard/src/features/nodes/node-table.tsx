import { Tooltip } from "@mantine/core";
import type { ClusterNode } from "@/shared/api/types";
import { bytes, celsius, NOTHING, percent, watts } from "@/shared/format";
import { JobLink } from "@/shared/owners/job-link";
import { type Column, Table } from "@/shared/table/table";
import { CloseIcon } from "@/shared/ui/icons";
import { StateBadge } from "@/shared/ui/state-badge";
import { DeviceLines, DeviceStrip } from "./device-strip";
import { NodeCard } from "./node-card";
import { jobsOn, summed } from "./node-sums";
import classes from "./nodes.module.css";

export interface NodeListProps {
  nodes: ClusterNode[];
  /** Names of the nodes whose devices are listed one by one. */
  opened: string[];
  onOpen: (name: string) => void;
  onClose: (name: string) => void;
}

/** One row a node, so that fifty nodes fit on a page; opened nodes list their devices. */
export function NodeTable({ nodes, opened, onOpen, onClose }: NodeListProps) {
  const card = (node: ClusterNode) => (
    <NodeCard key={node.id} node={node} onClose={() => onClose(node.name)} />
  );
  if (nodes.every((node) => opened.includes(node.name))) return nodes.map(card);
  const name: Column<ClusterNode> = {
    id: "node",
    header: "Node",
    rowHeader: true,
    cell: (node) => (
      <button
        type="button"
        className={classes.opener}
        aria-expanded={false}
        data-opener={node.name}
        aria-label={`Show the devices of ${node.name}`}
        onClick={() => onOpen(node.name)}
      >
        <CloseIcon />
        {node.name}
      </button>
    ),
  };
  return (
    <Table
      label="Nodes"
      columns={[name, ...COLUMNS]}
      rows={nodes}
      rowKey={(node) => node.id}
      rowProps={(node) => ({ "data-node": node.name })}
      whole={(node) => (opened.includes(node.name) ? card(node) : null)}
      className={classes.nodes}
      cards
    />
  );
}

const COLUMNS: Column<ClusterNode>[] = [
  {
    id: "state",
    header: "State",
    cell: (node) => <StateBadge state={node.state} reason={node.reason} />,
  },
  { id: "devices", header: "Devices", cell: (node) => <Strip devices={node.devices} /> },
  {
    id: "jobs",
    header: "Jobs",
    className: classes.jobs,
    cell: (node) =>
      jobsOn(node.devices).map(({ id, name, devices }) => (
        <span key={id}>
          <JobLink id={id} name={name} />
          {devices > 1 ? ` × ${devices}` : ""}
        </span>
      )),
  },
  {
    id: "utilization",
    header: "Utilization",
    right: true,
    cell: (node) => percent(summed(node.devices).utilization),
  },
  {
    id: "memory",
    header: "Device memory",
    right: true,
    cell: ({ devices }) => {
      const { memoryUsed, memoryTotal } = summed(devices);
      return memoryTotal > 0 ? `${bytes(memoryUsed)} / ${bytes(memoryTotal)}` : NOTHING;
    },
  },
  {
    id: "hottest",
    header: "Hottest",
    right: true,
    cell: (node) => celsius(summed(node.devices).hottest),
  },
  { id: "power", header: "Power", right: true, cell: (node) => watts(summed(node.devices).power) },
];

function Strip({ devices }: Pick<ClusterNode, "devices">) {
  return (
    <Tooltip label={<DeviceLines devices={devices} />} openDelay={200}>
      <div className={classes.hint}>
        <DeviceStrip devices={devices} />
      </div>
    </Tooltip>
  );
}
