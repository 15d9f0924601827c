import { Group, Select } from "@mantine/core";
import { getRouteApi } from "@tanstack/react-router";
import { memo } from "react";
import type { TrialAxis } from "./axes";
import classes from "./axis-choices.module.css";

const route = getRouteApi("/experiments/$experimentId");

interface Props {
  /** The objective first. */
  metrics: readonly string[];
  y: string;
  horizontal: readonly TrialAxis[];
  x: string;
}

/** The metric and the field that trials are drawn over. */
export const AxisChoices = memo(function AxisChoices({ metrics, y, horizontal, x }: Props) {
  const navigate = route.useNavigate();
  const change = (next: { x?: string | undefined; y?: string | undefined }) =>
    void navigate({ search: (old) => ({ ...old, ...next }), replace: true, resetScroll: false });
  const names: Record<string, string> = {
    number: "Trial, with the best so far",
    time: "Time, with the best so far",
  };
  return (
    <Group justify="flex-end">
      {metrics.length > 1 ? (
        <Select
          size="xs"
          w={250}
          label="Y axis"
          className={classes.axis ?? ""}
          data={[...metrics]}
          value={y}
          allowDeselect={false}
          onChange={(next) => change({ y: next === metrics[0] ? undefined : (next ?? undefined) })}
        />
      ) : null}
      <Select
        size="xs"
        w={310}
        label="X axis"
        className={classes.axis ?? ""}
        data={horizontal.map(({ id, scale }) => ({ value: id, label: names[id] ?? scale.label }))}
        value={x}
        allowDeselect={false}
        onChange={(next) => change({ x: next === "number" ? undefined : (next ?? undefined) })}
      />
    </Group>
  );
});
