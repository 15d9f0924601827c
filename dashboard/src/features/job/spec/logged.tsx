import { Stack, Text } from "@mantine/core";
import { isRun, type Job } from "@/shared/api/types";
import { metric } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";

type Entry = [name: string, value: string];

const COLUMNS: Column<Entry>[] = [
  { id: "name", header: "Name", rowHeader: true, cell: ([name]) => <code>{name}</code> },
  { id: "value", header: "Value", cell: ([, value]) => value },
];

/** Parameters that the job has logged itself, as by MLflow, and its MLflow tags; nothing without. */
export function Logged({ job }: { job: Job }) {
  const own = (job.spec?.parameters ?? {}) as Record<string, unknown>;
  const logged = Object.entries(job.parameters)
    .filter(([name]) => !(name in own))
    .map(([name, value]): Entry => [name, typeof value === "number" ? metric(value) : `${value}`]);
  return (
    <Stack gap="md">
      <Entries title={isRun(job) ? "Parameters" : "Logged parameters"} rows={logged} />
      <Entries title="MLflow tags" rows={Object.entries(job.mlflow_tags)} />
    </Stack>
  );
}

function Entries({ title, rows }: { title: string; rows: Entry[] }) {
  if (rows.length === 0) return null;
  return (
    <section aria-label={title}>
      <Text component="h3" size="sm" fw={600} mb="xs">
        {title}
      </Text>
      <Table label={title} columns={COLUMNS} rows={rows} rowKey={([name]) => name} />
    </section>
  );
}
