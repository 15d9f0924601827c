import { type Curve, hasPoints } from "@/shared/curves/curve";
import { look, PALETTE } from "@/shared/curves/palette";
import type { CurveStore } from "@/shared/curves/store";
import { bytes, duration, metric, percent, si } from "@/shared/format";
import { COMPRESSION, HIDDEN, isKnown, STEP_PARTS } from "@/shared/live/metric-names";

/** More ranks than these make one blur of lines. */
const MOST_RANKS = 16;

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
  /** Beside the job's own series, those of its ranks. */
  ranks: boolean;
  /** Changes with the set of series. */
  known: string;
}

/**
 * The charts of a job, without those that would be empty. Which there are is told by `all`, what they
 * draw by `shown`, so that none disappears in a part of the axis without points.
 */
export function panelsOf(all: CurveStore, shown: CurveStore, options: Options): Panel[] {
  const { origin, ranks } = options;
  const line = (name: string, label: string, place: number): Curve => ({
    store: shown,
    name,
    label,
    origin,
    color: PALETTE[place % PALETTE.length] ?? "gray",
  });
  // Of few points and without noise, as evaluations.
  const dots = (name: string, label: string, place: number): Curve => ({
    ...line(name, label, place),
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
  const custom = all.names().filter((name) => !isKnown(name));
  const panels: Panel[] = [
    {
      title: "Loss",
      curves: [line("loss", "training", 0), dots("eval_loss", "held out", 1)],
    },
    {
      title: "Accuracy",
      curves: [line("accuracy", "training", 0), dots("eval_accuracy", "held out", 1)],
    },
    { title: "Learning rate", curves: [exact("learning_rate")] },
    { title: "Gradient norm", curves: [line("gradient_norm", "", 0)] },
    ...custom.sort().map((name) => ({
      title: name,
      curves: [line(name, "", 0)],
      ...(name.endsWith("_bytes") ? { format: bytes, binary: true } : { format: metric }),
    })),
    { title: "Samples per second", format: si, curves: [line("samples_per_second", "", 0)] },
    {
      title: "Where a step's time goes",
      format: duration,
      stacked: true,
      curves: STEP_PARTS.map((name, i) => line(name, name.replace("_seconds", ""), i)),
    },
    {
      title: "Communication",
      format: duration,
      limits: [0],
      // Without what was hidden it would only repeat a part of the step.
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
      title: "Slowest rank against the median",
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
    .map((panel) => ({ ...panel, curves: panel.curves.filter((curve) => isThere(all, curve)) }))
    .filter((panel) => panel.curves.length > 0);
}

/** The ranks that have a series of this name, or any. */
export function ranksOf(store: CurveStore, name?: string): number[] {
  const names = name === undefined ? store.names() : [name];
  const ranks = new Set(names.flatMap((each) => store.ranks(each)));
  return [...ranks].sort((a, b) => a - b).slice(0, MOST_RANKS);
}

function withRanks(panel: Panel, byRank: (name: string) => Curve[]): Panel {
  const ranks = panel.curves.flatMap((curve) => byRank(curve.name));
  if (ranks.length === 0) return panel;
  const own = panel.curves.map((curve) => ({ ...curve, label: curve.label || "job" }));
  return { ...panel, curves: [...own, ...ranks] };
}

function isThere(all: CurveStore, curve: Curve): boolean {
  return hasPoints({ ...curve, store: all });
}
