import { useMemo } from "react";
import type { Experiment } from "@/shared/api/types";
import { Scatter } from "@/shared/curves/scatter/scatter";
import { fieldLabels, specOf, valueText } from "../../spec";
import { bestSoFar, type Configuration, objectiveText } from "../trials";
import { positionOn, type TrialAxis } from "./axes";
import type { BrushRange } from "./axis-brush";
import { fateOf, groupsOf } from "./fates";
import type { TrialMarks } from "./use-selection";

interface Props {
  experiment: Experiment;
  configurations: readonly Configuration[];
  x: TrialAxis;
  y: TrialAxis;
  marks: TrialMarks;
  onBrush: (ranges: Record<string, BrushRange>) => void;
}

/** A metric of every trial against a field, or against number or time with the best so far. */
export function ObjectiveChart({ experiment, configurations, x, y, marks, onBrush }: Props) {
  const { objective } = specOf(experiment);
  const isObjective = y.scale.label === objective.metric;
  const { points, values, groups } = useMemo(() => {
    const shown = configurations.flatMap((configuration) => {
      const [across, up] = [positionOn(x, configuration), positionOn(y, configuration)];
      return across === null || up === null ? [] : [{ configuration, across, up }];
    });
    shown.sort((a, b) => a.across - b.across);
    const fates = shown.map(({ configuration }) => fateOf(configuration.state));
    const groups = groupsOf(fates);
    return {
      points: shown.map(({ configuration, across, up }, i) => ({
        id: configuration.number,
        x: across,
        y: up,
        label: describe(configuration, objectiveText(up, isObjective ? configuration.step : null)),
        group: groups.findIndex(({ fate }) => fate === fates[i]),
      })),
      groups: groups.some(({ fate }) => fate !== "completed") ? groups : undefined,
      values: shown.map(({ configuration, up }) => (configuration.completed ? up : null)),
    };
  }, [configurations, x, y, isObjective]);
  const hasBest = isObjective && (x.id === "number" || x.id === "time");
  const line = useMemo(
    () =>
      hasBest
        ? { label: "best so far", values: bestSoFar(values, objective.goal ?? "min") }
        : undefined,
    [hasBest, values, objective.goal],
  );
  return (
    <Scatter
      title={`${y.scale.label} by ${x.scale.label}`}
      axis={x.scale}
      logarithmic={y.scale.kind === "log"}
      empty={emptyText(experiment, configurations)}
      points={points}
      groups={groups}
      line={line}
      {...marks}
      onBrush={(across, up) =>
        onBrush({ [x.id]: [across.from, across.to], [y.id]: [up.from, up.to] })
      }
    />
  );
}

/** Why the chart has no points. */
function emptyText(experiment: Experiment, configurations: readonly Configuration[]): string {
  if (experiment.finished_at === null) return "no values yet";
  const hasValue = configurations.some(({ runs }) =>
    runs.some(({ objective }) => objective !== null),
  );
  if (hasValue) return "No trial completed all its runs.";
  return `No run reported ${specOf(experiment).objective.metric}.`;
}

function describe({ number, values, state }: Configuration, y: string): string {
  const labels = fieldLabels(Object.keys(values));
  const parts = Object.entries(values).map(
    ([field, value]) => `${labels[field] ?? field} ${valueText(value)}`,
  );
  const fate = fateOf(state);
  const head = `trial ${number}: ${y}`;
  return [head, ...(fate === "completed" ? [] : [fate]), ...parts].join(" · ");
}
