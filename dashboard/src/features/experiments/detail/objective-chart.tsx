import { Group, Select } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import type { Experiment, Trial } from "@/shared/api/types";
import { Scatter, type ScatterAxis } from "@/shared/curves/chart/scatter";
import { metric } from "@/shared/format";
import { fieldLabels, specOf, valueText } from "../spec";
import classes from "./objective-chart.module.css";
import { bestSoFar, type Configuration, configurationsOf } from "./trials";

const route = getRouteApi("/experiments/$experimentId");

interface Props {
  experiment: Experiment;
  trials: readonly Trial[];
}

/** The value of every trial against a parameter, or against its number with the best so far. */
export function ObjectiveChart({ experiment, trials }: Props) {
  const navigate = route.useNavigate();
  const { objective, space } = specOf(experiment);
  const fields = Object.keys(space);
  const labels = fieldLabels(fields);
  const { x } = route.useSearch();
  const field = x !== undefined && fields.includes(x) ? x : null;
  const rated = configurationsOf(trials).filter(({ mean }) => mean !== null);
  const axis = field === null ? NUMBERS : axisOf(field, labels[field] ?? field, space, trials);
  const shown = rated
    .map((configuration) => ({ configuration, at: position(configuration, field, axis) }))
    .sort((a, b) => a.at - b.at);
  const means = shown.map(({ configuration: { completed, mean } }) => (completed ? mean : null));
  return (
    <div>
      <Group justify="flex-end" mb="xs">
        <Select
          size="xs"
          w={310}
          label="X axis"
          className={classes.axis ?? ""}
          data={[
            { value: "", label: "Trial, with the best so far" },
            ...fields.map((each) => ({ value: each, label: labels[each] ?? each })),
          ]}
          value={field ?? ""}
          allowDeselect={false}
          onChange={(next) =>
            void navigate({
              search: (old) => ({ ...old, x: next || undefined }),
              replace: true,
              resetScroll: false,
            })
          }
        />
      </Group>
      <Scatter
        title={`${objective.metric} by ${axis.label}`}
        axis={axis}
        empty={emptyText(experiment, trials)}
        points={shown.map(({ configuration, at }) => ({
          x: at,
          y: configuration.mean ?? 0,
          label: describe(configuration, labels),
        }))}
        line={
          field === null
            ? { label: "best so far", values: bestSoFar(means, objective.goal ?? "min") }
            : undefined
        }
        onOpen={(index) => {
          const jobId = shown[index]?.configuration.jobId;
          if (jobId) void navigate({ to: "/jobs/$jobId", params: { jobId } });
        }}
      />
    </div>
  );
}

const NUMBERS: ScatterAxis = { kind: "whole", label: "trial" };
/** Positive numbers that span this factor are shown on a logarithmic axis. */
const WIDE = 100;

function axisOf(
  field: string,
  label: string,
  space: Record<string, unknown>,
  trials: readonly Trial[],
): ScatterAxis {
  const dimension = space[field];
  const values = trials.map((trial) => trial.values[field]);
  if (!values.every((value) => typeof value === "number")) {
    const listed = Array.isArray(dimension) ? dimension : values;
    return { kind: "category", label, names: [...new Set(listed.map(valueText))] };
  }
  const isLog = typeof dimension === "object" && dimension !== null && "log" in dimension;
  const least = Math.min(...values);
  const spans = least > 0 && Math.max(...values) / least >= WIDE;
  const tried = Array.isArray(dimension) ? [...new Set(values)] : undefined;
  return { kind: isLog || spans ? "log" : "linear", label, tried };
}

/** Why the chart has no points. */
function emptyText(experiment: Experiment, trials: readonly Trial[]): string {
  if (experiment.finished_at === null) return "no values yet";
  if (trials.some(({ objective }) => objective !== null)) return "No trial completed all its runs.";
  return `No run reported ${specOf(experiment).objective.metric}.`;
}

function position({ number, values }: Configuration, field: string | null, axis: ScatterAxis) {
  if (field === null) return number;
  if (axis.kind === "category") return axis.names.indexOf(valueText(values[field]));
  return Number(values[field]);
}

function describe({ number, values, mean }: Configuration, labels: Record<string, string>): string {
  const parts = Object.entries(values).map(
    ([field, value]) => `${labels[field] ?? field} ${valueText(value)}`,
  );
  return [`trial ${number}: ${metric(mean)}`, ...parts].join(" · ");
}
