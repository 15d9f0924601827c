import { Stack, Text, Title } from "@mantine/core";
import type { Experiment, ScalingCurve, ScalingPoint } from "@/shared/api/types";
import { type Column, Table } from "@/shared/table/table";
import { Pending } from "@/shared/ui/problem";
import { useAnalysis } from "../api/experiments";
import { specOf } from "../spec";
import { SpeedupChart } from "./charts/speedup-chart";
import classes from "./scaling.module.css";
import { curveName, facts, kindOf, pointColumns } from "./scaling-points";

/** Measured and predicted speed-ups of a scaling study: a chart, and a table for each curve. */
export function Scaling({ experiment }: { experiment: Experiment }) {
  const query = useAnalysis(experiment);
  const { data: analysis } = query;
  if (analysis === undefined) return <Pending query={query} what="the scaling" height={260} />;
  const fields = Object.keys(specOf(experiment).space);
  const curves = (analysis.scaling ?? []).filter(({ points }) => points.length > 0);
  if (curves.length === 0)
    return (
      <Text size="sm" c="dimmed">
        No number of workers has been measured yet.
      </Text>
    );
  return (
    <Stack component="section" gap="md" aria-label="Scaling">
      <SpeedupChart curves={curves} fields={fields} />
      {curves.map((curve) => (
        <Curve
          key={curveName(curve, fields)}
          curve={curve}
          name={curveName(curve, fields)}
          metric={analysis.metric}
        />
      ))}
    </Stack>
  );
}

function Curve(props: { curve: ScalingCurve; name: string; metric: string }) {
  const { curve, name, metric } = props;
  const columns: Column<ScalingPoint>[] = pointColumns(metric).map(({ id, title, text, note }) => ({
    id,
    header: title,
    right: id !== "point",
    className: classes.cell,
    cell: (point) => (
      <>
        {text(point)}
        <Note text={note?.(point) ?? ""} />
      </>
    ),
  }));
  return (
    <Stack gap={4}>
      <Title order={2} size="h5">
        {name}
      </Title>
      {facts(curve).map((text) => (
        <Text key={text} size="xs" c="dimmed">
          {text}
        </Text>
      ))}
      <Table
        label={name}
        columns={columns}
        rows={curve.points}
        rowKey={(point) => `${point.workers} ${kindOf(point)}`}
        rowProps={(point) => ({ "data-kind": kindOf(point) })}
        className={classes.table}
        minWidth={760}
      />
    </Stack>
  );
}

function Note({ text }: { text: string }) {
  return text === "" ? null : (
    <Text size="xs" c="dimmed" className="numbers">
      {text}
    </Text>
  );
}
