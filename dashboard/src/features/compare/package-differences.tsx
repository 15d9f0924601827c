import { Switch, Text } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { useState } from "react";
import { packagesOptions } from "@/shared/api/packages";
import type { Job } from "@/shared/api/types";
import { labelOf } from "@/shared/curves/jobs/labels";
import { count, NOTHING, plural } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";
import classes from "./compare-page.module.css";
import { type PackageRow, packageRows } from "./package-rows";

const NAME: Column<PackageRow> = {
  id: "name",
  header: "Package",
  rowHeader: true,
  cell: ({ name }) => <code>{name}</code>,
};

/** The packages in which jobs differ, or all; jobs that reported none are left out. */
export function PackageDifferences({ jobs }: { jobs: Job[] }) {
  const [all, setAll] = useState(false);
  const queries = useQueries({ queries: jobs.map((job) => packagesOptions(job.id)) });
  const reported = jobs.flatMap((job, i) => {
    const found = queries[i]?.data;
    return found && found.attempt !== null ? [{ job, found }] : [];
  });
  if (reported.length < 2) return null;
  const rows = packageRows(reported.map(({ found }) => found));
  const different = rows.filter(({ differs }) => differs);
  const isSame = different.length === 0;
  const shown = all || isSame ? rows : different;
  const silent = jobs.length - reported.length;
  return (
    <details>
      <summary className={classes.fold}>
        {isSame
          ? `Identical packages (${count(rows.length)})`
          : plural(different.length, "package difference")}
        {silent > 0 ? `; ${plural(silent, "job")} reported none` : ""}
      </summary>
      {isSame ? null : (
        <Switch
          size="xs"
          mb="xs"
          label="All packages"
          checked={all}
          onChange={(event) => setAll(event.currentTarget.checked)}
        />
      )}
      <Table
        label="Packages"
        columns={[NAME, ...reported.map(({ job }, i) => columnOf(job, i, jobs))]}
        rows={shown}
        rowKey={({ name }) => name}
        className={classes.diff}
        cards
      />
    </details>
  );
}

function columnOf(job: Job, i: number, jobs: Job[]): Column<PackageRow> {
  return {
    id: job.id,
    header: labelOf(job, jobs),
    cell: ({ versions }) =>
      versions[i] ?? (
        <Text span c="dimmed">
          {NOTHING}
        </Text>
      ),
  };
}
