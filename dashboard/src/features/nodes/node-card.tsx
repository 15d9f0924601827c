import { ActionIcon, Group, Text, Title, Tooltip } from "@mantine/core";
import type { ClusterNode } from "@/shared/api/types";
import { bytes, percent } from "@/shared/format";
import { Confirm } from "@/shared/ui/confirm";
import { TrashIcon } from "@/shared/ui/icons";
import { Meter } from "@/shared/ui/meter";
import { StateBadge } from "@/shared/ui/state-badge";
import { Ago } from "@/shared/ui/time";
import { useRemoveNode } from "./api/remove-node";
import { DeviceTable, share } from "./device-table";
import classes from "./nodes.module.css";

interface Props {
  node: ClusterNode;
  names: Map<string, string>;
}

export function NodeCard({ node, names }: Props) {
  const remove = useRemoveNode();
  const busy = node.devices.filter((device) => device.job_id).length;
  return (
    <section className={classes.card} aria-label={`Node ${node.name}`}>
      <header className={classes.head}>
        <div className={classes.identity}>
          <Group gap="sm">
            <Title order={2} size="h5">
              {node.name}
            </Title>
            <StateBadge state={node.state} />
          </Group>
          <Text size="xs" c="dimmed">
            {facts(node).join(" · ")}
            {node.last_seen_at ? (
              <>
                {" · seen "}
                <Ago value={node.last_seen_at} />
              </>
            ) : null}
          </Text>
          {node.reason ? (
            <Text size="sm" mt={4}>
              {node.reason}
            </Text>
          ) : null}
        </div>
        <HostUse node={node} />
        <Confirm
          title={`Remove ${node.name}?`}
          text="It gets no new work, and is removed once what runs on it has ended. To come back, it has to be added again."
          action="Remove the node"
          onConfirm={() => remove.mutate(node.id)}
        >
          {(ask) => (
            <Tooltip label="Remove" openDelay={300}>
              <ActionIcon
                variant="subtle"
                color="red"
                aria-label={`Remove ${node.name}`}
                disabled={remove.isPending}
                onClick={ask}
              >
                <TrashIcon />
              </ActionIcon>
            </Tooltip>
          )}
        </Confirm>
      </header>
      {node.devices.length > 0 ? (
        <DeviceTable node={node.name} devices={node.devices} names={names} />
      ) : null}
      {node.devices.length > 0 ? (
        <Text size="xs" c="dimmed" className={classes.foot ?? ""}>
          {busy} of {node.devices.length} busy
        </Text>
      ) : null}
    </section>
  );
}

function HostUse({ node }: { node: ClusterNode }) {
  const host: Record<string, number | null | undefined> = { ...node.host };
  if (!host.memory_total) return <div className={classes.host} />;
  return (
    <dl className={classes.host}>
      <dt>CPU</dt>
      <dd>
        <Meter label="CPU" value={host.cpu ?? null} text={percent(host.cpu)} warnAt={95} />
      </dd>
      <dt>Memory</dt>
      <dd>
        <Meter
          label="Memory"
          value={share(host.memory_used, host.memory_total)}
          text={`${bytes(host.memory_used)} / ${bytes(host.memory_total)}`}
          warnAt={92}
        />
      </dd>
      <dt>Disk</dt>
      <dd>
        <Meter
          label="Disk"
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
    ...labels,
  ];
}
