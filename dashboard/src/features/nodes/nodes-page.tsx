import { Code, Group, SegmentedControl, Stack, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { useSummary } from "@/shared/api/cluster";
import { bytes, percent, watts } from "@/shared/format";
import { PageHeading } from "@/shared/page/heading";
import { useTitle } from "@/shared/title";
import { Empty } from "@/shared/ui/empty";
import { Pending } from "@/shared/ui/problem";
import { SearchField } from "@/shared/ui/search-field";
import { AddNode } from "./add-node";
import { useNodes } from "./api/nodes";
import { NodeGrid } from "./node-grid";
import { isAbout } from "./node-sums";
import { NodeTable } from "./node-table";
import classes from "./nodes.module.css";

const route = getRouteApi("/nodes");

/** Up to this many devices are listed one by one from the start. */
const FEW_DEVICES = 16;
/** More are shown as a grid at first. */
const MANY_NODES = 24;

export default function NodesPage() {
  useTitle("Nodes");
  const { search = "", open, view } = route.useSearch();
  const navigate = route.useNavigate();
  const nodes = useNodes();
  const all = nodes.data ?? [];
  const shown = all.filter((node) => isAbout(node, search));
  const devices = all.reduce((sum, node) => sum + node.devices.length, 0);
  const automatic = all.length > MANY_NODES ? "grid" : "table";
  const List = (view ?? automatic) === "grid" ? NodeGrid : NodeTable;
  const opened = open?.split(",") ?? (devices <= FEW_DEVICES ? all.map(({ name }) => name) : []);
  const pressed = useFocusOnOther();
  const show = (name: string, next: string[]) => {
    pressed.current = name;
    void navigate({
      search: (old) => ({ ...old, open: next.join() }),
      replace: true,
      resetScroll: false,
    });
  };
  return (
    <Stack gap="md">
      <PageHeading title="Nodes">
        <Group gap="xs">
          <SearchField
            w={220}
            placeholder="Name, state, label or job"
            aria-label="Search the nodes"
            value={search}
            onSearch={(text) =>
              void navigate({
                search: (old) => ({ ...old, search: text || undefined }),
                replace: true,
                resetScroll: false,
              })
            }
          />
          <SegmentedControl
            size="xs"
            aria-label="View"
            data={[
              { value: "grid", label: "Grid" },
              { value: "table", label: "Table" },
            ]}
            value={view ?? automatic}
            onChange={(next) =>
              void navigate({
                search: (old) => ({ ...old, view: next === automatic ? undefined : next }),
                replace: true,
                resetScroll: false,
              })
            }
          />
          <AddNode />
        </Group>
      </PageHeading>
      <Totals />
      <Pending query={nodes} what="the nodes" height={220} />
      {nodes.data?.length === 0 ? (
        <Empty title="No nodes yet">
          Jobs wait until a node joins. Add one here, or run <Code>trainhall up</Code> to start a
          coordinator and an agent on this machine.
        </Empty>
      ) : null}
      {all.length > 0 && shown.length === 0 ? (
        <Empty title="No node matches">Change the search.</Empty>
      ) : null}
      <List
        nodes={shown}
        opened={opened}
        onOpen={(name) => show(name, [...opened.filter((each) => each !== ""), name])}
        onClose={(name) =>
          show(
            name,
            opened.filter((each) => each !== name),
          )
        }
      />
    </Stack>
  );
}

/** Opening a node replaces the button that was pressed; the focus goes to the one in its place. */
function useFocusOnOther() {
  const pressed = useRef<string | null>(null);
  useEffect(() => {
    // The router renders the new URL later.
    if (pressed.current === null || document.activeElement !== document.body) return;
    const openers = document.querySelectorAll<HTMLElement>("[data-opener]");
    [...openers].find(({ dataset }) => dataset.opener === pressed.current)?.focus();
    pressed.current = null;
  });
  return pressed;
}

function Totals() {
  const { data } = useSummary();
  const tiles: [string, string][] = [
    ["Nodes", data ? String(data.nodes) : ""],
    ["Devices busy", data ? `${data.devices_busy} of ${data.devices}` : ""],
    ["Utilization", data ? percent(data.utilization) : ""],
    ["Device memory", data ? `${bytes(data.memory_used)} of ${bytes(data.memory_total)}` : ""],
    ...(data?.power === null ? [] : [["Power", data ? watts(data.power) : ""] as [string, string]]),
  ];
  return (
    <dl className={classes.totals}>
      {tiles.map(([label, value]) => (
        <div key={label} className={`app-card ${classes.tile}`}>
          <Text component="dt" size="xs" c="dimmed">
            {label}
          </Text>
          <dd>{value || "\u00a0"}</dd>
        </div>
      ))}
    </dl>
  );
}
