import { Code, Group, Skeleton, Stack, Text, TextInput, Title } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import { jobOptions } from "@/shared/api/get-job";
import { useSummary } from "@/shared/api/read-summary";
import type { ClusterNode } from "@/shared/api/types";
import { bytes, percent, watts } from "@/shared/format";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { SearchIcon } from "@/shared/ui/icons";
import { Problem } from "@/shared/ui/problem";
import { AddHost } from "./add-host";
import { useNodes } from "./api/list-nodes";
import { NodeList } from "./node-list";
import { isAbout } from "./node-sums";
import classes from "./nodes.module.css";

const route = getRouteApi("/nodes");

/** So many devices are shown one by one without being asked for. */
const FEW_DEVICES = 16;

export default function NodesPage() {
  useTitle("Nodes");
  const { search = "", open } = route.useSearch();
  const navigate = route.useNavigate();
  const nodes = useNodes();
  const all = nodes.data ?? [];
  const names = useJobNames(all);
  const shown = all.filter((node) => isAbout(node, search, names));
  const devices = all.reduce((sum, node) => sum + node.devices.length, 0);
  const opened = open?.split(",") ?? (devices <= FEW_DEVICES ? all.map(({ name }) => name) : []);
  const show = (next: string[]) =>
    void navigate({
      search: (old) => ({ ...old, open: next.join() }),
      replace: true,
      resetScroll: false,
    });
  return (
    <Stack gap="md">
      <Group justify="space-between">
        <Title order={1} size="h3">
          Nodes
        </Title>
        <Group gap="xs">
          <TextInput
            size="xs"
            w={220}
            placeholder="Name, state, label or job"
            aria-label="Search the nodes"
            leftSection={<SearchIcon />}
            value={search}
            onChange={(event) => {
              const text = event.currentTarget.value;
              void navigate({
                search: (old) => ({ ...old, search: text || undefined }),
                replace: true,
                resetScroll: false,
              });
            }}
          />
          <AddHost />
        </Group>
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
      {all.length > 0 && shown.length === 0 ? (
        <Empty title="No node matches">Choose another search.</Empty>
      ) : null}
      <NodeList
        nodes={shown}
        names={names}
        opened={opened}
        onOpen={(name) => show([...opened.filter((each) => each !== ""), name])}
        onClose={(name) => show(opened.filter((each) => each !== name))}
      />
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
