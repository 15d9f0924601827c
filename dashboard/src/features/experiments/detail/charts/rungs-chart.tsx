import { useMemo } from "react";
import { Scatter } from "@/shared/curves/scatter/scatter";
import { count, metric } from "@/shared/format";
import type { Configuration } from "../trials";
import { groupsOf } from "./fates";
import { rungResults } from "./rungs";
import type { TrialMarks } from "./use-selection";

interface Props {
  configurations: readonly Configuration[];
  metricName: string;
  logarithmic: boolean;
  marks: TrialMarks;
}

/** The results at the rungs of early stopping, and what became of each trial there. */
export function RungsChart({ configurations, metricName, logarithmic, marks }: Props) {
  const { axis, points, groups } = useMemo(() => drawn(configurations), [configurations]);
  return (
    <Scatter
      title={`${metricName} by rung`}
      axis={axis}
      empty="no trial has reached a rung"
      logarithmic={logarithmic}
      points={points}
      groups={groups}
      {...marks}
    />
  );
}

function drawn(configurations: readonly Configuration[]) {
  const results = rungResults(configurations).sort((a, b) => a.step - b.step);
  const steps = [...new Set(results.map(({ step }) => step))];
  const groups = groupsOf(results.map(({ fate }) => fate));
  const names = steps.map((step) => `step ${count(step)}`);
  return {
    axis: { kind: "category", label: "rung", names } as const,
    points: results.map(({ number, step, value, fate }) => ({
      id: number,
      x: steps.indexOf(step),
      y: value,
      label: `trial ${number} at step ${count(step)}: ${metric(value)}, ${fate}`,
      group: groups.findIndex((group) => group.fate === fate),
    })),
    groups,
  };
}
