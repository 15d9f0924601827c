import { Checkbox, Text } from "@mantine/core";
import { useMemo } from "react";
import { type Experiment, hasReason, type Trial } from "@/shared/api/types";
import { count, metric } from "@/shared/format";
import { type Column, Table } from "@/shared/table/table";
import { LinkedText } from "@/shared/ui/linked-text";
import { AnchorLink } from "@/shared/ui/links";
import { StateBadge } from "@/shared/ui/state-badge";
import { fieldLabels, specOf, valueText } from "../spec";
import type { TrialMarks } from "./charts/use-selection";
import { configurationsOf, sortedTrials, type TrialSort } from "./trials";
import classes from "./trials-table.module.css";

interface Props {
  experiment: Experiment;
  trials: readonly Trial[];
  marks: TrialMarks;
  sort: TrialSort;
  onSort: (sort: TrialSort) => void;
}

/** Each run of each trial: its values, what it reached, and its job. */
export function TrialsTable({ experiment, trials, marks, sort, onSort }: Props) {
  const rows = useMemo(() => sortedTrials(trials, sort), [trials, sort]);
  const columns = [selectColumn(marks), ...columnsOf(experiment, trials)].map((column) => {
    if (!column.sortable) return column;
    const key = column.id;
    const direction = sort === key ? "ascending" : sort === `-${key}` ? "descending" : "none";
    const onPress = () => onSort(sort === key ? `-${key}` : key);
    return { ...column, sort: { direction, onPress } } as const;
  });
  return (
    <Table
      label="Trials"
      columns={columns}
      rows={rows}
      rowKey={({ number, repeat }) => `${number}/${repeat}`}
      rowProps={({ number }) => ({
        "data-best": number === experiment.best?.trial || undefined,
        "data-marked": marks.selected?.has(number) || number === marks.hovered || undefined,
        onMouseEnter: () => marks.onHover(number),
        onMouseLeave: () => marks.onHover(null),
      })}
      className={classes.table}
      virtual
    />
  );
}

type TrialColumn = Column<Trial> & { sortable?: boolean };

/** Selects a trial, as a click on it in a chart does. */
function selectColumn({ selected, onPick }: TrialMarks): TrialColumn {
  return {
    id: "select",
    header: "Select",
    hidden: true,
    width: "36px",
    cell: ({ number, repeat }) =>
      repeat > 1 ? null : (
        <Checkbox
          size="xs"
          aria-label={`Select trial ${number}`}
          checked={selected?.has(number) ?? false}
          onChange={() => onPick(number)}
        />
      ),
  };
}

function columnsOf(experiment: Experiment, trials: readonly Trial[]): TrialColumn[] {
  const { early_stopping, objective, repeats = 1, space } = specOf(experiment);
  const labels = fieldLabels(Object.keys(space));
  const { best } = experiment;
  const parameters = Object.keys(space).map(
    (field): TrialColumn => ({
      id: field,
      header: <span title={field}>{labels[field]}</span>,
      right: true,
      sortable: true,
      className: classes.parameter,
      cell: ({ values }) => (
        <span title={JSON.stringify(values[field])}>{valueText(values[field])}</span>
      ),
    }),
  );
  return [
    {
      id: "number",
      header: "Trial",
      sortable: true,
      className: classes.number,
      cell: ({ number, repeat }) => (
        <>
          {number}
          {repeats > 1 ? (
            <Text size="xs" c="dimmed">
              repeat {repeat} of {repeats}
            </Text>
          ) : null}
          {number === best?.trial ? (
            <Text size="xs" fw={600} className={classes.best ?? ""}>
              best{best.step === null ? "" : " so far"}
            </Text>
          ) : null}
        </>
      ),
    },
    ...parameters,
    {
      id: "value",
      header: <span title={objective.metric}>{objective.metric}</span>,
      right: true,
      sortable: true,
      className: classes.parameter,
      cell: ({ objective: value, objective_step: step }) => <Value value={value} step={step} />,
    },
    ...(repeats > 1 ? [meanColumn(trials)] : []),
    ...(early_stopping ? RUNG_COLUMNS : []),
    {
      id: "state",
      header: "State",
      sortable: true,
      className: classes.state,
      cell: (trial) => (
        <>
          <StateBadge state={trial.state} />
          {hasReason(trial) ? (
            <Text size="xs" c="dimmed" lineClamp={3} mt={3} title={trial.reason}>
              <LinkedText text={trial.reason} />
            </Text>
          ) : null}
        </>
      ),
    },
    {
      id: "job",
      header: "Job",
      className: classes.job,
      cell: ({ job_id: jobId }) =>
        jobId === null ? null : (
          <AnchorLink to="/jobs/$jobId" params={{ jobId }} size="xs" ff="monospace">
            {jobId}
          </AnchorLink>
        ),
    },
  ];
}

/** With early stopping: how far a run came. */
const RUNG_COLUMNS: TrialColumn[] = [
  {
    id: "rung",
    header: <span title="Rungs of early stopping that the run has reached">rung</span>,
    right: true,
    sortable: true,
    cell: ({ rung }) => count(rung),
  },
  { id: "step", header: "step", right: true, sortable: true, cell: ({ step }) => count(step) },
];

/** With repeats: the mean over the runs of a trial, which rates it. */
function meanColumn(trials: readonly Trial[]): TrialColumn {
  const means = new Map(configurationsOf(trials).map((each) => [each.number, each]));
  return {
    id: "mean",
    header: <span title="Mean over the runs of the trial">mean</span>,
    right: true,
    className: classes.parameter,
    cell: ({ number }) => {
      const { mean, step } = means.get(number) ?? { mean: null, step: null };
      return <Value value={mean} step={step} />;
    },
  };
}

/** An objective; of a run that has not completed, that of its last rung. */
function Value({ value, step }: { value: number | null; step: number | null }) {
  if (step === null) return metric(value);
  return (
    <Text size="sm" c="dimmed" span title="Value at the last rung of a run that has not completed">
      {metric(value)}{" "}
      <Text size="xs" span>
        at step {count(step)}
      </Text>
    </Text>
  );
}
