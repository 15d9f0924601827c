import { Badge, Group, Stack, Text, Title } from "@mantine/core";
import { useMemo, useState } from "react";
import { type BenchmarkRow, type Experiment, hasReason } from "@/shared/api/types";
import { type Column, Table } from "@/shared/table/table";
import { LinkedText } from "@/shared/ui/linked-text";
import { Pending } from "@/shared/ui/problem";
import { StateBadge } from "@/shared/ui/state-badge";
import { useAnalysis, useTrials } from "../api/experiments";
import classes from "./benchmark.module.css";
import {
  type BenchmarkColumn,
  type BenchmarkSort,
  columnsOf,
  commonText,
  communicationColumns,
  jobsAgainstBaseline,
  sortedRows,
} from "./benchmark-rows";
import { CompareButton } from "./compare-button";

/** The table of a benchmark: the figures of each combination beside those of the baseline. */
export function Benchmark({ experiment }: { experiment: Experiment }) {
  const query = useAnalysis(experiment);
  const [sort, setSort] = useState<BenchmarkSort>("trial");
  const { data: analysis } = query;
  const shown = useMemo(() => {
    const rows = (analysis?.table ?? []) as BenchmarkRow[];
    const columns = columnsOf(rows, analysis?.metric ?? "");
    return { columns, rows: sortedRows(rows, columns, sort) };
  }, [analysis, sort]);
  const trials = useTrials(experiment).data;
  const jobs = jobsAgainstBaseline(shown.rows, trials ?? []);
  if (analysis === undefined) return <Pending query={query} what="the benchmark" height={240} />;
  const common = commonText(shown.rows);
  const columns: Column<BenchmarkRow>[] = shown.columns.map((column, i) => ({
    ...tableColumn(column, i),
    sort: {
      direction:
        sort === column.id ? "ascending" : sort === `-${column.id}` ? "descending" : "none",
      onPress: () => setSort(sort === column.id ? `-${column.id}` : column.id),
    },
  }));
  const communicating = shown.rows.filter((row) => row.compares_communication);
  return (
    <Stack component="section" gap="xs" aria-label="Benchmark">
      <Group justify="space-between">
        <Title order={2} size="h5">
          Benchmark
        </Title>
        {jobs.length > 1 ? <CompareButton jobs={jobs} /> : null}
        <Text size="xs" c="dimmed">
          medians over the steps after the warm-up; with repeats, means and ranges over the runs
          {common === "" ? "" : `. All rows: ${common}`}
        </Text>
      </Group>
      <Table
        label="Benchmark"
        columns={[...columns, STATE]}
        rows={shown.rows}
        rowKey={({ trial }) => trial}
        rowProps={({ is_baseline: isBaseline, trial }) => ({
          "data-baseline": isBaseline || undefined,
          "data-best": trial === analysis.best?.trial || undefined,
        })}
        className={classes.table}
      />
      {communicating.length > 0 ? (
        <>
          <Title order={3} size="h6">
            Communication
          </Title>
          <Table
            label="Communication"
            columns={communicationColumns(communicating).map(tableColumn)}
            rows={communicating}
            rowKey={({ trial }) => trial}
            rowProps={({ is_baseline: isBaseline }) => ({
              "data-baseline": isBaseline || undefined,
            })}
            className={classes.table}
          />
        </>
      ) : null}
    </Stack>
  );
}

function tableColumn(column: BenchmarkColumn, index: number): Column<BenchmarkRow> {
  return {
    // The first one stays while the others scroll.
    ...(index === 0 ? { left: 0 } : {}),
    id: column.id,
    header: <span title={column.hint}>{column.title}</span>,
    right: !column.isText,
    className: classes.figure,
    cell: (row) => (
      <>
        {row.is_baseline && column.text(row) === "baseline" ? (
          <Badge size="sm" variant="light" tt="none">
            baseline
          </Badge>
        ) : (
          column.text(row)
        )}
        <Note text={column.note?.(row) ?? ""} />
      </>
    ),
  };
}

const STATE: Column<BenchmarkRow> = {
  id: "state",
  header: "State",
  className: classes.state,
  cell: (row) => (
    <>
      <StateBadge state={row.state} />
      {row.completed < row.runs ? <Note text={`${row.completed} of ${row.runs} runs`} /> : null}
      {hasReason(row) ? (
        <Text size="xs" c="dimmed" lineClamp={6} title={row.reason}>
          <LinkedText text={row.reason} />
        </Text>
      ) : null}
      {row.interruptions.map((text) => (
        <Text key={text} size="xs" c="dimmed">
          <LinkedText text={text} />
        </Text>
      ))}
      {row.shared_with.length > 0 ? (
        <Text size="xs" c="dimmed">
          <LinkedText text={`shared hosts with ${row.shared_with.join(", ")}`} />
        </Text>
      ) : null}
    </>
  ),
};

function Note({ text }: { text: string }) {
  return text === "" ? null : (
    <Text size="xs" c="dimmed" className="numbers">
      {text}
    </Text>
  );
}
