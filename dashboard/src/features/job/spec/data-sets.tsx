import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { listDataSetsOptions } from "@/client/@tanstack/react-query.gen";
import type { JobDataSet } from "@/client/types.gen";
import type { Job } from "@/shared/api/types";
import { bytes, count, NOTHING } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";

const COLUMNS: Column<JobDataSet>[] = [
  { id: "name", header: "Name", rowHeader: true, cell: ({ name }) => <code>{name}</code> },
  { id: "place", header: "Path or URL", cell: ({ path, url }) => path ?? url },
  {
    id: "files",
    header: "Files",
    cell: ({ files, is_partial }) =>
      files === null ? NOTHING : `${count(files)}${is_partial ? " and more" : ""}`,
  },
  { id: "size", header: "Size", cell: ({ bytes: size }) => bytes(size) },
  { id: "sha256", header: "Fingerprint", cell: fingerprintOf },
  { id: "node", header: "Prepared on", cell: ({ node }) => node ?? NOTHING },
];

/** The data sets of a job, as its hosts found them; nothing for a job without. */
export function DataSets({ job }: { job: Job }) {
  const has = ((job.spec?.data as unknown[] | undefined) ?? []).length > 0;
  const found = useQuery({
    ...listDataSetsOptions({ path: { job_id: job.id } }),
    enabled: has,
    // Hosts report them while the job starts.
    refetchInterval: job.state === "starting" ? 2000 : false,
  }).data;
  if (!has || found === undefined) return null;
  return (
    <section aria-label="Data sets">
      <Text component="h3" size="sm" fw={600} mb="xs">
        Data sets
      </Text>
      <Table
        label="Data sets"
        columns={COLUMNS}
        rows={found.items}
        rowKey={({ name }) => name}
        cards
      />
    </section>
  );
}

function fingerprintOf({ sha256, kind }: JobDataSet) {
  if (sha256 === null) return NOTHING;
  return (
    <span title={`SHA-256 ${sha256}`}>
      <code>{sha256.slice(0, 12)}</code>
      {kind === "listing" ? " (names, sizes and times)" : ""}
    </span>
  );
}
