import { SegmentedControl, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { nodeHistoryOptions } from "@/shared/api/cluster";
import type { ClusterNode } from "@/shared/api/types";
import { Chart } from "@/shared/curves/chart/chart";
import controls from "@/shared/curves/controls/controls.module.css";
import { devicePanels } from "@/shared/devices/panels";
import { Pending } from "@/shared/ui/problem";
import classes from "./nodes.module.css";

const HOURS = ["1", "6", "24", "48"];

/** Charts of a node's devices over some hours: utilization, memory, temperature and power. */
export default function NodeHistory({ node }: { node: ClusterNode }) {
  const [hours, setHours] = useState("1");
  const since = useMemo(
    () => new Date(Date.now() - Number(hours) * 3600_000).toISOString(),
    [hours],
  );
  const history = useQuery({
    ...nodeHistoryOptions(node.id, { since, until: null }),
    placeholderData: (before) => before,
  });
  const noun = node.devices.some((device) => device.kind === "cuda") ? "GPU" : "slot";
  const panels = useMemo(() => {
    const shown = (history.data?.items ?? []).map((each) => ({
      label: `${noun} ${each.index}`,
      history: each,
    }));
    return devicePanels(shown);
  }, [history.data, noun]);
  return (
    <div className={classes.history}>
      <SegmentedControl
        size="xs"
        aria-label="Hours of history"
        data={HOURS.map((value) => ({ value, label: `${value} h` }))}
        value={hours}
        onChange={setHours}
      />
      <Pending query={history} what="the history" height={220} />
      {history.data && panels.length === 0 ? (
        <Text size="sm" c="dimmed">
          No readings in this time. Devices are sampled every 30 s.
        </Text>
      ) : null}
      <div className={controls.grid}>
        {panels.map((panel) => (
          <Chart
            key={panel.title}
            {...panel}
            axis="time"
            smoothing={0}
            syncKey={`node-${node.id}`}
          />
        ))}
      </div>
    </div>
  );
}
