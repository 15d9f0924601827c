import { Group, SegmentedControl, Slider, Stack, Switch, Text } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { Job } from "@/shared/api/types";
import { Chart, type Curve } from "@/shared/curves/chart";
import { bytes, duration, metric, si } from "@/shared/format";
import classes from "./curves-tab.module.css";
import type { JobLive } from "./live/job-live";
import { customNames, STEP_PARTS } from "./live/metric-names";
import { useCurveVersion } from "./live/use-job-live";

const route = getRouteApi("/jobs/$jobId");

const PALETTE = [
  "var(--mantine-color-ink-6)",
  "var(--mantine-color-orange-6)",
  "var(--mantine-color-teal-6)",
  "var(--mantine-color-grape-5)",
  "var(--mantine-color-cyan-7)",
  "var(--mantine-color-pink-6)",
  "var(--mantine-color-lime-7)",
  "var(--mantine-color-yellow-7)",
];

/** More ranks than these make one blur of lines. */
const MOST_RANKS = 16;

interface Panel {
  title: string;
  curves: Curve[];
  format?: (value: number | null) => string;
  logarithmic?: boolean;
}

interface Props {
  job: Job;
  live: JobLive;
}

export default function CurvesTab({ job, live }: Props) {
  const { x = "step", smooth = 0, log = false } = route.useSearch();
  const navigate = route.useNavigate();
  const [dragged, setDragged] = useState<number | null>(null);
  const version = useCurveVersion(live.curves);
  const custom = customNames(job.metrics).join(",");
  // biome-ignore lint/correctness/useExhaustiveDependencies: which ranks have series depends on the version
  const ranks = useMemo(
    () => live.curves.ranks("step_seconds").slice(0, MOST_RANKS).join(","),
    [live, version],
  );
  const panels = useMemo(() => panelsOf(custom, ranks, log), [custom, ranks, log]);
  return (
    <Stack gap="md">
      <Group gap="xl" className={classes.controls ?? ""}>
        <Group gap="xs">
          <Text size="xs" c="dimmed" id="curves-x">
            Over
          </Text>
          <SegmentedControl
            size="xs"
            aria-labelledby="curves-x"
            data={[
              { value: "step", label: "Steps" },
              { value: "time", label: "Time" },
            ]}
            value={x}
            onChange={(next) =>
              void navigate({
                search: (old) => ({ ...old, x: next === "time" ? "time" : undefined }),
                replace: true,
              })
            }
          />
        </Group>
        <Group gap="xs">
          <Text size="xs" c="dimmed">
            Smoothing
          </Text>
          <Slider
            w={140}
            size="sm"
            min={0}
            max={0.99}
            step={0.01}
            label={(value) => value.toFixed(2)}
            thumbLabel="Smoothing"
            value={dragged ?? smooth}
            onChange={setDragged}
            onChangeEnd={(value) => {
              setDragged(null);
              void navigate({
                search: (old) => ({ ...old, smooth: value > 0 ? value : undefined }),
                replace: true,
              });
            }}
          />
        </Group>
        <Switch
          size="xs"
          label="Logarithmic loss"
          checked={log}
          onChange={(event) => {
            const on = event.currentTarget.checked;
            void navigate({
              search: (old) => ({ ...old, log: on ? true : undefined }),
              replace: true,
            });
          }}
        />
        <Text size="xs" c="dimmed" ml="auto" visibleFrom="md">
          Drag to zoom, double-click to see all
        </Text>
      </Group>
      <div className={classes.grid}>
        {panels.map((panel) => (
          <Chart
            key={panel.title}
            {...panel}
            store={live.curves}
            axis={x}
            smoothing={dragged ?? smooth}
            syncKey={job.id}
          />
        ))}
      </div>
    </Stack>
  );
}

function panelsOf(custom: string, ranks: string, log: boolean): Panel[] {
  const names = custom === "" ? [] : custom.split(",");
  const rankList = ranks === "" ? [] : ranks.split(",").map(Number);
  return [
    {
      title: "Loss",
      logarithmic: log,
      curves: [line("loss", "training", 0), points("eval_loss", "held out", 1)],
    },
    {
      title: "Accuracy",
      curves: [line("accuracy", "training", 0), points("eval_accuracy", "held out", 1)],
    },
    { title: "Learning rate", curves: [exact("learning_rate")] },
    { title: "Gradient norm", curves: [line("gradient_norm", "", 0)] },
    {
      title: "Where a step's time goes",
      format: duration,
      curves: STEP_PARTS.map((name, i) => line(name, name.replace("_seconds", ""), i)),
    },
    { title: "Samples per second", format: si, curves: [line("samples_per_second", "", 0)] },
    {
      title: "Step time by rank",
      format: duration,
      curves:
        rankList.length > 0
          ? rankList.map((rank, i) => ({ ...line("step_seconds", `rank ${rank}`, i), rank }))
          : [line("step_seconds", "", 0)],
    },
    { title: "Peak memory", format: bytes, curves: [exact("peak_memory_bytes")] },
    ...names.map((name) => ({ title: name, format: metric, curves: [line(name, "", 0)] })),
  ];
}

function line(name: string, label: string, color: number): Curve {
  return { name, label, color: PALETTE[color % PALETTE.length] ?? "gray" };
}

/** A curve of few points without noise: evaluations. */
function points(name: string, label: string, color: number): Curve {
  return { ...line(name, label, color), dots: true, exact: true };
}

function exact(name: string): Curve {
  return { ...line(name, "", 0), exact: true };
}
