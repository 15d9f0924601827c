import { Stack } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { useMemo } from "react";
import type { Experiment, Trial } from "@/shared/api/types";
import { Pending } from "@/shared/ui/problem";
import { useTrials } from "../api/experiments";
import { specOf } from "../spec";
import {
  fieldAxes,
  metricAxis,
  metricNames,
  NUMBERS,
  type TrialAxis,
  timeAxis,
} from "./charts/axes";
import { AxisChoices } from "./charts/axis-choices";
import { ObjectiveChart } from "./charts/objective-chart";
import { ParallelChart } from "./charts/parallel-chart";
import { RungsChart } from "./charts/rungs-chart";
import { useSelection } from "./charts/use-selection";
import { SelectionBar } from "./selection-bar";
import { BY_NUMBER, configurationsOf, type TrialSort } from "./trials";
import classes from "./trials-tab.module.css";
import { TrialsTable } from "./trials-table";

const route = getRouteApi("/experiments/$experimentId");

export function TrialsTab({ experiment }: { experiment: Experiment }) {
  const trials = useTrials(experiment);
  if (trials.data === undefined) return <Pending query={trials} what="the trials" height={320} />;
  return <Trials experiment={experiment} trials={trials.data} />;
}

/** The charts and the table of the trials; a selection in one of them shows in all. */
function Trials({ experiment, trials }: { experiment: Experiment; trials: readonly Trial[] }) {
  const { sort = BY_NUMBER, ...search } = route.useSearch();
  const navigate = route.useNavigate();
  const { early_stopping, objective } = specOf(experiment);
  const configurations = useMemo(() => configurationsOf(trials), [trials]);
  const metrics = useMemo(
    () => metricNames(objective.metric, configurations),
    [objective.metric, configurations],
  );
  const fields = useMemo(() => fieldAxes(experiment, configurations), [experiment, configurations]);
  const [value, ...others] = useMemo(
    () => metrics.map((name) => metricAxis(name, objective.metric, configurations)),
    [metrics, objective.metric, configurations],
  ) as [TrialAxis, ...TrialAxis[]];
  const horizontal = useMemo(
    () => [NUMBERS, timeAxis(experiment), ...fields],
    [experiment, fields],
  );
  const parallel = useMemo(() => [...fields, value], [fields, value]);
  const x = horizontal.find(({ id }) => id === search.x) ?? NUMBERS;
  const y = others.find(({ scale }) => scale.label === search.y) ?? value;
  const axes = useMemo(() => [...horizontal, value, y], [horizontal, value, y]);
  const { marks, brush, onBrush, onClear } = useSelection(configurations, axes);
  const onSort = (next: TrialSort) =>
    void navigate({
      search: (old) => ({ ...old, sort: next === BY_NUMBER ? undefined : next }),
      resetScroll: false,
    });
  return (
    <Stack gap="md">
      <AxisChoices metrics={metrics} y={y.scale.label} horizontal={horizontal} x={x.id} />
      <div className={classes.charts}>
        <ObjectiveChart
          experiment={experiment}
          configurations={configurations}
          x={x}
          y={y}
          marks={marks}
          onBrush={onBrush}
        />
        {early_stopping ? (
          <RungsChart
            configurations={configurations}
            metricName={objective.metric}
            logarithmic={value.scale.kind === "log"}
            marks={marks}
          />
        ) : null}
      </div>
      <ParallelChart
        axes={parallel}
        configurations={configurations}
        goal={objective.goal ?? "min"}
        brush={brush}
        {...marks}
        onBrush={(axis, range) => onBrush({ [axis]: range })}
      />
      <SelectionBar configurations={configurations} selected={marks.selected} onClear={onClear} />
      <TrialsTable
        experiment={experiment}
        trials={brush ? trials.filter(({ number }) => marks.selected?.has(number)) : trials}
        marks={marks}
        sort={sort}
        onSort={onSort}
      />
    </Stack>
  );
}
