import { Text } from "@mantine/core";
import type { Plan } from "@/client";
import { bytes, metric, NOTHING } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";
import classes from "./plan-card.module.css";

interface Row {
  name: string;
  predicted: string;
  measured: string;
  error: string;
}

const COLUMNS: Column<Row>[] = [
  { id: "name", header: "Quantity", hidden: true, rowHeader: true, cell: ({ name }) => name },
  { id: "predicted", header: "Predicted", cell: ({ predicted }) => predicted },
  { id: "measured", header: "Measured", cell: ({ measured }) => measured },
  { id: "error", header: "Error", cell: ({ error }) => error },
];

/** The plan of a job: its reason, the prediction and what was measured. */
export function PlanCard({ plan }: { plan: Plan }) {
  const { prediction, measured, error } = plan;
  const rows = [
    {
      name: "Peak memory per device",
      predicted: bytes(prediction.peak_memory_bytes),
      measured:
        measured && measured.peak_memory_bytes === null
          ? "only on GPUs"
          : bytes(measured?.peak_memory_bytes),
      error: relativeError(error?.peak_memory_bytes),
    },
    {
      name: "Step time",
      predicted: `${metric(prediction.step_seconds)} s`,
      measured: measured ? `${metric(measured.step_seconds)} s` : NOTHING,
      error: relativeError(error?.step_seconds),
    },
  ];
  return (
    <section className={`app-card ${classes.card}`} aria-label="Plan">
      <Text size="sm">
        {plan.is_named ? "Predicted" : "Planned"}: {plan.reason}.
      </Text>
      <Table
        label="Prediction and measurement"
        columns={COLUMNS}
        rows={rows}
        rowKey={({ name }) => name}
        className={classes.figures}
        bare
      />
      <Text size="xs" c="dimmed">
        {measured ? null : "Measured once an attempt completes or pauses. "}Assumptions:{" "}
        {plan.assumed}.
      </Text>
    </section>
  );
}

/** An error relative to the prediction, with its sign. */
function relativeError(value: number | null | undefined): string {
  if (value === undefined || value === null) return NOTHING;
  return `${value < 0 ? "−" : "+"}${Math.abs(Math.round(100 * value))} %`;
}
