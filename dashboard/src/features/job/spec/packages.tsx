import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { packagesOptions, versionsOf } from "@/shared/api/packages";
import { plural } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";

type Version = [name: string, version: string];

const COLUMNS: Column<Version>[] = [
  { id: "name", header: "Package", rowHeader: true, cell: ([name]) => <code>{name}</code> },
  { id: "version", header: "Version", cell: ([, version]) => version },
];

/** What the newest attempt ran with, folded; nothing until it has reported that. */
export function Packages({ jobId }: { jobId: string }) {
  const found = useQuery(packagesOptions(jobId)).data;
  if (found === undefined || found.attempt === null) return null;
  const { host, python, cuda, driver, os, packages } = found;
  const parts = [
    `Python ${python}`,
    ...(packages.torch ? [`torch ${packages.torch}`] : []),
    ...(cuda ? [`CUDA ${cuda}`] : []),
    ...(driver ? [`driver ${driver}`] : []),
    plural(Object.keys(packages).length, "package"),
    os,
    ...(host ? [`on ${host}`] : []),
  ];
  return (
    <details>
      <Text component="summary" size="sm" mb="xs" style={{ cursor: "pointer" }}>
        Attempt {found.attempt} ran with {parts.join(", ")}
      </Text>
      <Table
        label="Packages"
        columns={COLUMNS}
        rows={versionsOf(found)}
        rowKey={([name]) => name}
      />
    </details>
  );
}
