import { Table, Text } from "@mantine/core";
import type { Plan } from "@/client";
import { bytes, metric, NOTHING } from "@/shared/format";
import classes from "./plan-card.module.css";

/** What was planned for a job of strategy `auto`: why, what was expected, and what came of it. */
export function PlanCard({ plan }: { plan: Plan }) {
  const { prediction, measured, error } = plan;
  const rows = [
    {
      name: "memory of a device",
      predicted: bytes(prediction.peak_memory_bytes),
      measured: bytes(measured?.peak_memory_bytes),
      error: share(error?.peak_memory_bytes),
    },
    {
      name: "a step",
      predicted: `${metric(prediction.step_seconds)} s`,
      measured: measured ? `${metric(measured.step_seconds)} s` : NOTHING,
      error: share(error?.step_seconds),
    },
  ];
  return (
    <section className={classes.card} aria-label="Plan">
      <Text size="sm">Planned: {plan.reason}.</Text>
      <Table className={classes.figures ?? ""} verticalSpacing={2} horizontalSpacing="sm">
        <Table.Thead>
          <Table.Tr>
            <Table.Th />
            <Table.Th>predicted</Table.Th>
            <Table.Th>measured</Table.Th>
            <Table.Th>error</Table.Th>
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
        {measured ? null : "Measured when an attempt has completed or paused. "}Assumed:{" "}
        {plan.assumed}.
      </Text>
    </section>
  );
}

/** Of the prediction, with its sign. */
function share(value: number | undefined): string {
  if (value === undefined) return NOTHING;
  return `${value < 0 ? "−" : "+"}${Math.abs(Math.round(100 * value))} %`;
}
