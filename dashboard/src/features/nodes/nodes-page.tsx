import { Code, Group, Skeleton, Stack, Text, Title } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { jobOptions } from "@/shared/api/get-job";
import { useSummary } from "@/shared/api/read-summary";
import type { ClusterNode } from "@/shared/api/types";
import { bytes, percent, watts } from "@/shared/format";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { Problem } from "@/shared/ui/problem";
import { AddHost } from "./add-host";
import { useNodes } from "./api/list-nodes";
import { NodeCard } from "./node-card";
import classes from "./nodes.module.css";

export default function NodesPage() {
  useTitle("Nodes");
  const nodes = useNodes();
  const names = useJobNames(nodes.data ?? []);
  return (
    <Stack gap="md">
      <Group justify="space-between">
        <Title order={1} size="h3">
          Nodes
        </Title>
        <AddHost />
      </Group>
      <Totals />
      {nodes.error ? (
        <Problem
          error={nodes.error}
          what="The nodes could not be read"
          onRetry={() => void nodes.refetch()}
        />
      ) : null}
      {nodes.isPending && !nodes.error ? <Skeleton height={220} /> : null}
      {nodes.data?.length === 0 ? (
        <Empty title="No nodes yet">
          Jobs wait until a host joins. Add one here, or run <Code>trainhall up</Code> to get a
          coordinator and an agent on this machine at once.
        </Empty>
      ) : null}
      {nodes.data?.map((node) => (
        <NodeCard key={node.id} node={node} names={names} />
      ))}
    </Stack>
  );
}

function Totals() {
  const { data } = useSummary();
  const tiles: [string, string][] = [
    ["Nodes", data ? String(data.nodes) : ""],
    ["Devices busy", data ? `${data.devices_busy} of ${data.devices}` : ""],
    ["Utilisation", data ? percent(data.utilization) : ""],
    ["Device memory", data ? `${bytes(data.memory_used)} of ${bytes(data.memory_total)}` : ""],
    ...(data?.power === null ? [] : [["Power", data ? watts(data.power) : ""] as [string, string]]),
  ];
  return (
    <dl className={classes.totals}>
      {tiles.map(([label, value]) => (
        <div key={label} className={classes.tile}>
          <Text component="dt" size="xs" c="dimmed">
            {label}
          </Text>
          <dd>{value || "\u00a0"}</dd>
        </div>
      ))}
    </dl>
  );
}

/** The names of the jobs that hold devices, for links that say more than an id. */
function useJobNames(nodes: ClusterNode[]): Map<string, string> {
  const held = nodes.flatMap((node) => node.devices.map((device) => device.job_id));
  const ids = [...new Set(held.filter((id): id is string => Boolean(id)))];
  const jobs = useQueries({
    queries: ids.map((id) => ({ ...jobOptions(id), staleTime: 60_000 })),
  });
  return new Map(ids.flatMap((id, i) => (jobs[i]?.data ? [[id, jobs[i].data.name]] : [])));
}
