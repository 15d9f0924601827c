import { look, PALETTE } from "@/shared/curves/chart/palette";
import { type Curve, hasPoints } from "@/shared/curves/data/curve";
import type { CurveStore } from "@/shared/curves/data/store";
import { bytes, duration, percent, si } from "@/shared/format";
import {
  COMPRESSION,
  formatOf,
  HIDDEN,
  isKnown,
  isValidationOf,
  labelOf,
  STEP_PARTS,
} from "@/shared/live/metric-names";

/** More would make one blur of lines. */
const MAX_RANKS = 16;

export interface Panel {
  title: string;
  curves: Curve[];
  format?: (value: number | null) => string;
  stacked?: boolean;
  binary?: boolean;
  limits?: readonly number[];
}

interface Options {
  origin: number;
  /** Draw the series of single ranks as well. */
  ranks: boolean;
  /** Changes with the set of series. */
  seriesKey: string;
  /** Name of the series whose chart comes first. */
  mainMetric: string | undefined;
}

/**
 * The charts of a job, without empty ones. `all` decides which there are and `shown` holds the points
 * to draw, so that no chart disappears while zoomed into a range without points.
 */
export function panelsOf(all: CurveStore, shown: CurveStore, options: Options): Panel[] {
  const { origin, ranks, mainMetric } = options;
  const isMain = ({ curves }: Panel) => curves.some(({ name }) => name === mainMetric);
  const line = (name: string, label: string, index: number): Curve => ({
    store: shown,
    name,
    label,
    origin,
    color: PALETTE[index % PALETTE.length] ?? "gray",
  });
  // Evaluations: few points, without noise.
  const dots = (name: string, label: string, index: number): Curve => ({
    ...line(name, label, index),
    dots: true,
    exact: true,
  });
  const exact = (name: string): Curve => ({ ...line(name, "", 0), exact: true });
  const byRank = (name: string): Curve[] =>
    ranksOf(all, name).map((rank) => ({
      ...line(name, `rank ${rank}`, rank + 1),
      rank,
      thin: true,
    }));
  // `eval_loss` of the tasks, `val/loss` of a script.
  const validation = (measure: "loss" | "accuracy"): Curve[] => {
    const names = all.names().filter((name) => isValidationOf(measure, name));
    return names.map((name, i) => dots(name, names.length > 1 ? name : "validation", i + 1));
  };
  const custom = all
    .names()
    .filter((name) => !isKnown(name))
    .filter((name) => !isValidationOf("loss", name) && !isValidationOf("accuracy", name));
  const panels: Panel[] = [
    {
      title: "Loss",
      curves: [line("loss", "training", 0), ...validation("loss")],
    },
    {
      title: "Accuracy",
      curves: [line("accuracy", "training", 0), ...validation("accuracy")],
    },
    { title: "Learning rate", curves: [exact("learning_rate")] },
    { title: "Gradient norm", curves: [line("gradient_norm", "", 0)] },
    ...custom.sort().map((name) => ({
      title: labelOf(name),
      curves: [line(name, "", 0)],
      format: formatOf(name),
      binary: name.endsWith("_bytes"),
    })),
    { title: "Samples per second", format: si, curves: [line("samples_per_second", "", 0)] },
    {
      title: "Step time breakdown",
      format: duration,
      stacked: true,
      curves: STEP_PARTS.map((name, i) => line(name, name.replace("_seconds", ""), i)),
    },
    {
      title: "Communication",
      format: duration,
      limits: [0],
      // Without hidden communication it would repeat a part of the step time breakdown.
      curves: all.names().includes(HIDDEN)
        ? [
            line("communication_seconds", "exposed", 0),
            line(HIDDEN, "hidden", 1),
            ...(all.names().includes(COMPRESSION) ? [line(COMPRESSION, "compression", 2)] : []),
          ]
        : [],
    },
    {
      title: "Step time by rank",
      format: duration,
      curves: [line("step_seconds", "job", 0), ...(ranks ? [] : byRank("step_seconds"))],
    },
    {
      title: "Pipeline bubble",
      format: (share) => percent(share === null ? null : 100 * share),
      limits: [0],
      curves: [
        line("bubble_fraction", "measured", 0),
        { ...exact("bubble_fraction_expected"), label: "expected", ...look(PALETTE.length + 1) },
      ],
    },
    {
      title: "Slowest rank vs. median",
      format: (ratio) => (ratio === null ? "" : `${ratio.toFixed(2)} ×`),
      limits: [1],
      curves: [line("slowest_rank_ratio", "slowest", 0)],
    },
    {
      title: "Peak memory",
      format: bytes,
      binary: true,
      limits: [0],
      curves: [exact("peak_memory_bytes")],
    },
  ];
  return panels
    .map((panel) => (ranks && !panel.stacked ? withRanks(panel, byRank) : panel))
    .map((panel) => ({
      ...panel,
      curves: panel.curves.filter((curve) => hasPoints({ ...curve, store: all })),
    }))
    .filter((panel) => panel.curves.length > 0)
    .sort((a, b) => Number(isMain(b)) - Number(isMain(a)));
}

/** The ranks that have a series of this name; without a name, of any. */
export function ranksOf(store: CurveStore, name?: string): number[] {
  const names = name === undefined ? store.names() : [name];
  const ranks = new Set(names.flatMap((each) => store.ranks(each)));
  return [...ranks].sort((a, b) => a - b).slice(0, MAX_RANKS);
}

function withRanks(panel: Panel, byRank: (name: string) => Curve[]): Panel {
  const ranks = panel.curves.flatMap((curve) => byRank(curve.name));
  if (ranks.length === 0) return panel;
  const own = panel.curves.map((curve) => ({ ...curve, label: curve.label || "job" }));
  return { ...panel, curves: [...own, ...ranks] };
}
