import uPlot from "uplot";
import { axisLook, each, linearRange, logRange, vertical } from "@/shared/curves/chart/axes";
import { positionText } from "@/shared/curves/chart/legend";
import { type Look, look, resolved } from "@/shared/curves/chart/palette";
import { pointsOf, type Shape } from "@/shared/curves/chart/shapes";
import { powersOfTen, SECOND_TICKS, STEP_TICKS, spaced } from "@/shared/curves/chart/ticks";
import { metric } from "@/shared/format";

export interface ScatterPoint {
  /** Several points may be of the same thing. */
  id: number;
  x: number;
  y: number;
  /** Shown for the point under the pointer. */
  label: string;
  /** Index of its group, which decides its colour and shape. */
  group?: number;
}

export type ScatterAxis =
  | { kind: "whole"; label: string }
  /** Seconds. */
  | { kind: "elapsed"; label: string }
  /** `tried`: the few values that there can be, which are its ticks. */
  | { kind: "linear" | "log"; label: string; tried?: readonly number[] | undefined }
  /** Positions are indexes of the names. */
  | { kind: "category"; label: string; names: readonly string[] };

export interface ScatterData {
  axis: ScatterAxis;
  /** In the order of x. */
  points: readonly ScatterPoint[];
  /** Their colours and shapes; left out: one for all. */
  groups?: readonly { label: string; look: Look }[];
  /** Ids of the points that stand out; null: all. */
  selected?: ReadonlySet<number> | null;
  /** A stepped line over the points, one value for each. */
  line?: { label: string; values: readonly (number | null)[] } | undefined;
  /** Logarithmic vertical axis. */
  logarithmic?: boolean;
}

export const SCATTER_HEIGHT = 220;
export const LINE = look(1);
const ONE_GROUP = [{ label: "", look: look(0) }];
/** Distance in pixels within which the pointer is at a point. */
const REACH = 24;

/** x, the points that do not stand out, those of each group, and the line. */
export function dataOf({ points, groups = ONE_GROUP, selected, line }: ScatterData) {
  const standsOut = ({ id }: ScatterPoint) => !selected || selected.has(id);
  const columns = groups.map((_, index) =>
    points.map((point) => (standsOut(point) && (point.group ?? 0) === index ? point.y : null)),
  );
  return [
    points.map(({ x }) => x),
    points.map((point) => (standsOut(point) ? null : point.y)),
    ...columns,
    ...(line ? [[...line.values]] : []),
  ] as uPlot.AlignedData;
}

export function optionsOf(
  { axis, points, groups = ONE_GROUP, line, logarithmic }: ScatterData,
  dark: boolean,
  width: number,
): uPlot.Options {
  const marks = (color: string, shape: Shape = "dot"): uPlot.Series => ({
    stroke: color,
    paths: () => null,
    points: pointsOf(shape, color),
  });
  const steps = (): uPlot.Series => ({
    stroke: resolved(LINE.color),
    width: 1.5,
    points: { show: false },
    ...(uPlot.paths.stepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
  });
  return {
    width,
    height: SCATTER_HEIGHT,
    legend: { show: false },
    cursor: {
      points: { show: false },
      x: false,
      y: false,
      drag: { x: true, y: true, setScale: false },
    },
    scales: {
      x: {
        time: false,
        distr: axis.kind === "log" ? 3 : 1,
        // From the points: uPlot would show twice the value of a single one.
        range: ({ data: [x] }) => xRange(axis, x[0], x.at(-1)),
      },
      y: logarithmic
        ? { distr: 3, range: logRange }
        : { range: (_, low, high) => linearRange(low, high, []) },
    },
    axes: [
      {
        ...horizontal(axis, dark),
        ...wholeTicks(
          points.map(({ x }) => x),
          axis.kind,
        ),
      },
      { ...vertical(dark, each(metric)), ...wholeTicks(points.map(({ y }) => y)) },
    ],
    series: [
      {},
      marks(dark ? "rgba(255,255,255,0.14)" : "rgba(20,30,50,0.14)"),
      ...groups.map(({ look: { color, shape } }) => marks(resolved(color), shape)),
      ...(line ? [steps()] : []),
    ],
  };
}

/** The range of an axis with some space on either side, so that no point is cut. */
export function xRange(axis: ScatterAxis, low?: number, high?: number): uPlot.Range.MinMax {
  if (axis.kind === "category") return [-0.5, axis.names.length - 0.5];
  if (low === undefined || high === undefined) return [1, 10];
  if (axis.kind === "log") {
    const factor = Math.max(1.2, (high / low) ** 0.04);
    return [low / factor, high * factor];
  }
  // Below 1 there is no number of a trial, and between two there is no tick.
  if (axis.kind === "whole") return [Math.max(0.5, low - 0.5), high + 0.5];
  const padding = (high - low) * 0.04 || Math.abs(high) * 0.5 || 1;
  return [low - padding, high + padding];
}

/** The distances of the ticks between whole numbers, such as counts. */
function wholeTicks(values: readonly number[], kind = "linear"): Pick<uPlot.Axis, "incrs"> {
  return kind === "linear" && values.every(Number.isInteger) ? { incrs: STEP_TICKS } : {};
}

function horizontal(axis: ScatterAxis, dark: boolean): uPlot.Axis {
  const x: uPlot.Axis = {
    ...axisLook(dark),
    size: 28,
    space: 56,
    values: (_, ticks: (number | null)[]) =>
      ticks.map((tick) => (tick === null ? "" : metric(tick))),
  };
  if (axis.kind === "whole") x.incrs = STEP_TICKS;
  if (axis.kind === "elapsed") {
    x.incrs = SECOND_TICKS;
    x.values = (_, ticks) => ticks.map((tick) => positionText(tick, "elapsed"));
  }
  if (axis.kind === "category") {
    x.splits = () => axis.names.map((_, i) => i);
    x.values = () => [...axis.names];
  }
  if (axis.kind === "log" || (axis.kind === "linear" && axis.tried)) {
    const { kind, tried } = axis;
    x.splits = ({ data, over }, _, low, high) => {
      const scale = { low, high, log: kind === "log", length: over.clientWidth };
      if (tried) return spaced(tried, scale);
      return powersOfTen(data[0][0] ?? low, data[0].at(-1) ?? high, scale);
    };
    // On a logarithmic axis uPlot would label powers of ten only.
    x.filter = (_, ticks) => ticks;
  }
  return x;
}

/** The index of the point at the pointer, if one is within reach. */
export function nearest(plot: uPlot, points: readonly ScatterPoint[]): number | null {
  const { left = -1, top = -1 } = plot.cursor;
  if (left < 0 || top < 0) return null;
  let found: number | null = null;
  let least = REACH;
  points.forEach(({ x, y }, i) => {
    const distance = Math.hypot(plot.valToPos(x, "x") - left, plot.valToPos(y, "y") - top);
    if (distance < least) [found, least] = [i, distance];
  });
  return found;
}
