import { Text, Title } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { useAttempts } from "@/features/job/api/attempts";
import { nodeHistoryOptions } from "@/shared/api/cluster";
import type { Attempt, Job } from "@/shared/api/types";
import { Chart } from "@/shared/curves/chart/chart";
import controls from "@/shared/curves/controls/controls.module.css";
import type { Range } from "@/shared/curves/data/axis";
import { type DeviceCurves, devicePanels } from "@/shared/devices/panels";
import { originOf } from "@/shared/live/job-live";

const MAX_DEVICES = 16;

interface Props {
  job: Job;
  axis: "time" | "elapsed";
  range: Range | null;
  onRange: (range: Range | null) => void;
}

/** Utilization, memory and power of the newest attempt's devices; nothing without readings. */
export function DeviceUse({ job, axis, range, onRange }: Props) {
  const attempt = useAttempts(job.id).data?.at(-1);
  const devices = useDevices(attempt);
  const origin = originOf(job);
  const panels = useMemo(() => devicePanels(devices, origin), [devices, origin]);
  if (panels.length === 0 || attempt === undefined) return null;
  return (
    <section aria-labelledby="device-use">
      <Title order={2} size="h5" mb={4} id="device-use">
        Devices
      </Title>
      <Text size="xs" c="dimmed" mb="sm">
        Attempt {attempt.attempt}, sampled every 30 s.
      </Text>
      <div className={controls.grid}>
        {panels.map((panel) => (
          <Chart
            key={panel.title}
            {...panel}
            axis={axis}
            smoothing={0}
            syncKey={`${job.id}-devices`}
            range={range}
            onRange={onRange}
          />
        ))}
      </div>
    </section>
  );
}

function useDevices(attempt: Attempt | undefined): DeviceCurves[] {
  const nodes = attempt?.allocation ?? [];
  const since = attempt?.started_at ?? "";
  const until = attempt?.finished_at ?? null;
  const histories = useQueries({
    queries: nodes.map((node) => nodeHistoryOptions(node.node_id, { since, until })),
    combine: (all) => all.map((one) => one.data?.items),
  });
  return useMemo(() => {
    const several = nodes.length > 1;
    return nodes
      .flatMap((node, i) =>
        node.ranks.flatMap((rank): DeviceCurves[] => {
          const history = histories[i]?.find((each) => each.index === rank.device_index);
          const where = several ? ` on ${node.node_name}` : "";
          return history ? [{ label: `rank ${rank.rank}${where}`, history }] : [];
        }),
      )
      .slice(0, MAX_DEVICES);
  }, [nodes, histories]);
}
