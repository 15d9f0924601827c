import { Text } from "@mantine/core";
import { Fragment } from "react";
import type { Job } from "@/shared/api/types";
import { labelOf } from "@/shared/curves/jobs/labels";
import { NOTHING, plural } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";
import classes from "./compare-page.module.css";
import { type Difference, specDifferences } from "./spec-diff";

/** The SHA-256 of uploaded code. */
const HASH = /^[0-9a-f]{64}$/;
/** Above this many the table is folded, so that the curves are on the screen. */
const FEW = 12;

const KEY: Column<Difference> = {
  id: "key",
  header: "Spec key",
  rowHeader: true,
  cell: ({ key }) => <code>{key}</code>,
};

/** A table of the spec keys in which jobs differ; nothing for a single job. */
export function SpecDifferences({ jobs }: { jobs: Job[] }) {
  if (jobs.length < 2) return null;
  const differences = specDifferences(
    jobs.map((job) => ({ ...job.spec, parameters: job.parameters })),
  );
  if (differences.length === 0) {
    return (
      <Text size="sm" c="dimmed">
        Identical configs.
      </Text>
    );
  }
  return (
    <details open={differences.length <= FEW}>
      <summary className={classes.fold}>{plural(differences.length, "spec difference")}</summary>
      <Table
        label="Spec differences"
        columns={[KEY, ...jobs.map((job, i) => columnOf(job, i, jobs))]}
        rows={differences}
        rowKey={({ key }) => key}
        className={classes.diff}
        cards
      />
    </details>
  );
}

function columnOf(job: Job, i: number, jobs: Job[]): Column<Difference> {
  return {
    id: job.id,
    header: labelOf(job, jobs),
    cell: ({ values }) => <Value value={values[i] ?? null} />,
  };
}

function Value({ value }: { value: Difference["values"][number] }) {
  if (value === null) {
    return (
      <Text span c="dimmed">
        {NOTHING}
      </Text>
    );
  }
  if (typeof value === "string") return <Plain value={value} />;
  return (
    <span>
      [
      {value.map(({ text, differs }, i) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the elements of a spec never change
        <Fragment key={i}>
          {i > 0 ? ", " : null}
          {differs ? <mark>{text}</mark> : text}
        </Fragment>
      ))}
      ]
    </span>
  );
}

/** A hash by its beginning; a number never breaks. */
function Plain({ value }: { value: string }) {
  if (HASH.test(value)) return <code title={value}>{value.slice(0, 12)}</code>;
  return Number.isNaN(Number(value)) ? value : <span className="nowrap">{value}</span>;
}
