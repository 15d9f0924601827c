import { Table, Text } from "@mantine/core";
import type { Plan } from "@/client";
import { bytes, metric, NOTHING } from "@/shared/format";
import classes from "./plan-card.module.css";

/** The plan of a job with strategy `auto`: its reason, the prediction and what was measured. */
export function PlanCard({ plan }: { plan: Plan }) {
  const { prediction, measured, error } = plan;
  const rows = [
    {
      name: "Peak memory per device",
      predicted: bytes(prediction.peak_memory_bytes),
      measured: bytes(measured?.peak_memory_bytes),
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
    <section className={classes.card} aria-label="Plan">
      <Text size="sm">Planned: {plan.reason}.</Text>
      <Table className={classes.figures ?? ""} verticalSpacing={2} horizontalSpacing="sm">
        <Table.Thead>
          <Table.Tr>
            <Table.Th />
            <Table.Th>Predicted</Table.Th>
            <Table.Th>Measured</Table.Th>
            <Table.Th>Error</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {rows.map((row) => (
            <Table.Tr key={row.name}>
              <Table.Th scope="row">{row.name}</Table.Th>
              <Table.Td>{row.predicted}</Table.Td>
              <Table.Td>{row.measured}</Table.Td>
              <Table.Td>{row.error}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      <Text size="xs" c="dimmed">
        {measured ? null : "Measured once an attempt completes or pauses. "}Assumptions:{" "}
        {plan.assumed}.
      </Text>
    </section>
  );
}

/** An error relative to the prediction, with its sign. */
function relativeError(value: number | undefined): string {
  if (value === undefined) return NOTHING;
  return `${value < 0 ? "−" : "+"}${Math.abs(Math.round(100 * value))} %`;
}
