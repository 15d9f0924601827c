import { getRouteApi } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { Configuration } from "../trials";
import type { TrialAxis } from "./axes";
import type { BrushRange } from "./axis-brush";
import { type Brush, brushed, selectedOf, type TrialSearch, toggled } from "./selection";

const route = getRouteApi("/experiments/$experimentId");

/** The trials that stand out in all charts and the table. */
export interface TrialMarks {
  /** Numbers; null: all. */
  selected: ReadonlySet<number> | null;
  hovered: number | null;
  onHover: (number: number | null) => void;
  onPick: (number: number) => void;
}

interface TrialSelection {
  marks: TrialMarks;
  brush: Brush | undefined;
  onBrush: (ranges: Readonly<Record<string, BrushRange | null>>) => void;
  onClear: () => void;
}

/** The selection of trials, which is in the URL, and the trial under the pointer. */
export function useSelection(
  configurations: readonly Configuration[],
  axes: readonly TrialAxis[],
): TrialSelection {
  const { brush, selected } = route.useSearch();
  const navigate = route.useNavigate();
  const [hovered, onHover] = useState<number | null>(null);
  const numbers = useMemo(
    () => selectedOf({ brush, selected }, configurations, axes),
    [brush, selected, configurations, axes],
  );
  const change = (next: TrialSearch) =>
    void navigate({
      search: (old) => ({ ...old, brush: next.brush, selected: next.selected }),
      replace: true,
      resetScroll: false,
    });
  return {
    brush,
    marks: {
      selected: numbers,
      hovered,
      onHover,
      onPick: (number) => change(toggled({ selected }, number)),
    },
    onBrush: (ranges) => change(brushed({ brush }, ranges)),
    onClear: () => change({}),
  };
}
