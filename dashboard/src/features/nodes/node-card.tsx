import { Button, Group, Stack, Text, Title } from "@mantine/core";
import { useState } from "react";
import { useRights } from "@/shared/api/rights";
import type { ClusterNode } from "@/shared/api/types";
import { ConfirmedCommand } from "@/shared/dialogs/confirm";
import { bytes, percent, plural } from "@/shared/format";
import { JobLink } from "@/shared/owners/job-link";
import { lazyComponent } from "@/shared/page/lazy-component";
import { OpenIcon } from "@/shared/ui/icons";
import { Meter } from "@/shared/ui/meter";
import { StateBadge } from "@/shared/ui/state-badge";
import { Ago } from "@/shared/ui/time";
import { useRemoveNode } from "./api/nodes";
import { DeviceTable, share } from "./device-table";
import { DrainButton } from "./drain-button";
import { NodeEvents } from "./node-events";
import { jobsOn } from "./node-sums";
import classes from "./nodes.module.css";
import { ProjectsButton } from "./projects-button";

// The plotting library is loaded with a history only.
const NodeHistory = lazyComponent(() => import("./node-history"), "the history");

/** Codes of the reasons that name the drain. */
const DRAIN_CODES = new Set(["draining", "drained"]);

interface Props {
  node: ClusterNode;
  onClose: () => void;
}

/** A node with all of its devices. */
export function NodeCard({ node, onClose }: Props) {
  const { admin } = useRights();
  const remove = useRemoveNode();
  const [open, setOpen] = useState(false);
  const busy = node.devices.filter((device) => device.busy).length;
  return (
    <section className={`app-card ${classes.card}`} aria-label={`Node ${node.name}`}>
      <header className={classes.head}>
        <div className={classes.identity}>
          <Group gap="sm">
            <Title order={2} size="h5">
              <button
                type="button"
                className={classes.opener}
                aria-expanded
                data-opener={node.name}
                aria-label={`Hide the devices of ${node.name}`}
                onClick={onClose}
              >
                <OpenIcon />
                {node.name}
              </button>
            </Title>
            <StateBadge state={node.state} />
          </Group>
          <Text size="xs" c="dimmed">
            {facts(node).join(" · ")}
            {node.last_seen_at ? (
              <>
                {" · last heartbeat "}
                <Ago value={node.last_seen_at} />
              </>
            ) : null}
          </Text>
          {node.reason && node.state !== "ready" ? (
            <Text size="sm" mt={4}>
              {node.reason} (<Ago value={node.state_at} />)
            </Text>
          ) : null}
          {node.drain_reason && !DRAIN_CODES.has(node.reason_code) ? (
            <Text size="sm">Will be drained: {node.drain_reason}</Text>
          ) : null}
        </div>
        <HostUse node={node} />
      </header>
      {node.devices.length > 0 ? <DeviceTable node={node.name} devices={node.devices} /> : null}
      <Group justify="space-between" className={classes.foot ?? ""}>
        <Text size="xs" c="dimmed">
          {node.devices.length > 0 ? `${busy} of ${node.devices.length} busy` : "no devices"}
        </Text>
        <Group gap="xs">
          <ProjectsButton node={node} />
          <DrainButton node={node} />
          <ConfirmedCommand
            label="Remove"
            name={`Remove ${node.name}`}
            busy={remove.isPending}
            refused={admin ?? node.refused_commands.remove}
            title={`Remove ${node.name}?`}
            text={<Consequences node={node} />}
            action="Remove node"
            onConfirm={() => remove.mutate({ path: { node_id: node.id } })}
          />
          <Button
            size="xs"
            variant="default"
            aria-expanded={open}
            aria-label={`History of ${node.name}`}
            onClick={() => setOpen(!open)}
          >
            {open ? "Hide history" : "History"}
          </Button>
        </Group>
      </Group>
      {open ? <NodeEvents id={node.id} name={node.name} /> : null}
      {open && node.devices.length > 0 ? <NodeHistory node={node} /> : null}
    </section>
  );
}

/** The consequences of removing a node, with the jobs on it. */
function Consequences({ node }: { node: ClusterNode }) {
  const jobs = jobsOn(node.devices);
  return (
    <Stack gap="xs">
      {jobs.length === 0 ? (
        <span>Nothing runs on it. It is removed at once.</span>
      ) : (
        <>
          <span>
            It gets no new work. These jobs save and move to other devices, or wait until some are
            free; then the node is removed:
          </span>
          <ul className={classes.moving}>
            {jobs.map(({ id, name, devices }) => (
              <li key={id}>
                <JobLink id={id} name={name} /> ({plural(devices, "device")} here)
              </li>
            ))}
          </ul>
        </>
      )}
      <span>To use it again, add it as a new node.</span>
    </Stack>
  );
}

function HostUse({ node }: { node: ClusterNode }) {
  const { host } = node;
  if (!host.memory_total) return <div className={classes.host} />;
  return (
    <dl className={classes.host}>
      <dt>Host CPU</dt>
      <dd>
        <Meter label="Host CPU" value={host.cpu ?? null} text={percent(host.cpu)} warnAt={95} />
      </dd>
      <dt>Host memory</dt>
      <dd>
        <Meter
          label="Host memory"
          value={share(host.memory_used, host.memory_total)}
          text={`${bytes(host.memory_used)} / ${bytes(host.memory_total)}`}
          warnAt={92}
        />
      </dd>
      <dt>Host disk</dt>
      <dd>
        <Meter
          label="Host disk"
          value={share(host.disk_used, host.disk_total)}
          text={`${bytes(host.disk_used)} / ${bytes(host.disk_total)}`}
          warnAt={92}
        />
      </dd>
    </dl>
  );
}

function facts(node: ClusterNode): string[] {
  const labels = Object.entries(node.labels).map(([key, value]) => `${key}=${String(value)}`);
  return [
    ...(node.address ? [node.address] : []),
    node.agent_version ? `agent ${node.agent_version}` : "has not joined yet",
    ...(node.host.container_engine ? [`containers by ${node.host.container_engine}`] : []),
    ...labels,
    ...(node.projects ? [`jobs of ${node.projects.join(", ") || "other projects"} only`] : []),
  ];
}
