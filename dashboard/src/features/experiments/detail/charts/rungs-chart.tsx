import { useMemo } from "react";
import { look } from "@/shared/curves/chart/palette";
import { Scatter } from "@/shared/curves/chart/scatter";
import { count, metric } from "@/shared/format";
import type { Configuration } from "../trials";
import { FATES, rungResults } from "./rungs";
import type { TrialMarks } from "./use-selection";

interface Props {
  configurations: readonly Configuration[];
  metricName: string;
  logarithmic: boolean;
  marks: TrialMarks;
}

const LOOKS = [0, 2, 5, 7, 1].map(look);

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
  const shown = FATES.filter((fate) => results.some((each) => each.fate === fate));
  const names = steps.map((step) => `step ${count(step)}`);
  return {
    axis: { kind: "category", label: "rung", names } as const,
    points: results.map(({ number, step, value, fate }) => ({
      id: number,
      x: steps.indexOf(step),
      y: value,
      label: `trial ${number} at step ${count(step)}: ${metric(value)}, ${fate}`,
      group: shown.indexOf(fate),
    })),
    groups: shown.map((fate) => ({ label: fate, look: LOOKS[FATES.indexOf(fate)] ?? look(0) })),
  };
}
