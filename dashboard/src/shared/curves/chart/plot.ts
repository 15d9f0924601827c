import uPlot from "uplot";
import { type Axis, BYTE_TICKS, extentOf, metricOf, type Range } from "@/shared/curves/data/axis";
import type { Curve, Points } from "@/shared/curves/data/curve";
import { isScattered, pointsOf } from "@/shared/curves/data/points";
import { byteTicks, dateAndTime } from "@/shared/format";
import { formatOf } from "@/shared/live/metric-names";
import { COLUMNS_PER_CURVE, chartData, stackedData, trimmedExtremes } from "./columns";
import { positionText } from "./legend";
import { type Marker, markerPlugin, markersAt } from "./markers";
import { resolved } from "./palette";
import { SECOND_TICKS, STEP_TICKS } from "./ticks";

interface PlotOptions {
  curves: Curve[];
  axis: Axis;
  logarithmic: boolean;
  stacked: boolean;
  /** Values are bytes. */
  binary: boolean;
  /** Values that the vertical axis always includes. */
  limits: readonly number[];
  dark: boolean;
  height: number;
  /** Plots with the same key share their cursor. */
  syncKey: string;
  format: (value: number | null) => string;
  smoothing: () => number;
  /** The vertical axis leaves out outliers. */
  trim: () => boolean;
  /** The part of the axis that is shown; null: all of it. */
  range: () => Range | null;
  /** The reader selected a range, or all of the axis (null). */
  onRange: (range: Range | null) => void;
  markers: () => readonly Marker[];
  /**
   * The cursor moved to a position on the axis, with the labels of the markers there, or left; with the
   * drawn points of each curve.
   */
  onCursor: (at: number | null, markers: string, points: readonly Points[]) => void;
}

/** Indexes of a curve's columns. */
const [MIN, MAX, VALUE] = [0, 1, 2] as const;
/** Percent of a colour in an area of a stack. */
const STACK_TINT = 62;
/** Minimum width of a drag in pixels; less is a click. */
const MIN_DRAG = 6;

/** A uPlot of the curves' stores; it is created once and gets new points by `setData` only. */
export class Plot {
  private readonly plot: uPlot;
  private points: readonly Points[] = [];
  /** Points are drawn as dots without lines. */
  private scattered = false;

  constructor(
    private readonly element: HTMLElement,
    private readonly options: PlotOptions,
  ) {
    const { curves, axis, logarithmic, stacked, dark, height, syncKey, format } = options;
    const colors = curves.map((curve) => resolved(curve.color));
    this.plot = new uPlot(
      {
        width: this.width(),
        height,
        legend: { show: false },
        cursor: {
          // Charts share the cursor only; a selection reaches them all as the new range.
          sync: { key: syncKey, filters: { pub: isMove, sub: isMove } },
          points: { size: 6 },
          drag: { x: true, y: false, setScale: false },
          bind: { dblclick: () => () => this.reset() },
        },
        scales: {
          x: { time: axis === "time", range: (plot) => this.xRange(plot) },
          y: {
            distr: logarithmic ? 3 : 1,
            range: logarithmic
              ? logRange
              : stacked
                ? stackRange
                : (plot, low, high) =>
                    linearRange(...this.extremes(plot, low, high), options.limits),
          },
        },
        axes: [horizontal(dark, axis), vertical(dark, options.binary ? byteTicks : each(format))],
        series: [
          {},
          ...curves.flatMap((curve, i) =>
            lines(curve, colors[i] ?? "gray", stacked, i === 0, () => this.scattered),
          ),
        ],
        bands: colors.flatMap((color, i) => (stacked ? stackBand(i, color) : spreadBand(i, color))),
        plugins: [markerPlugin(options.markers, axis, curves[0])],
        hooks: {
          setCursor: [() => this.reportCursor()],
          setSelect: [() => this.selected()],
        },
      },
      chartData([]),
      element,
    );
    this.draw();
  }

  /** Draws the current points of the stores. */
  draw(): void {
    const { curves, axis, stacked } = this.options;
    const smoothing = this.options.smoothing();
    this.points = curves.map((curve) => pointsOf(curve, axis));
    this.scattered = !stacked && curves.some((curve) => isScattered(curve, axis));
    const drawn = this.points.map((points, i) => ({
      points,
      smoothing: curves[i]?.exact ? 0 : smoothing,
    }));
    const data = stacked ? stackedData(drawn) : chartData(drawn);
    if (!stacked) {
      drawn.forEach((each, i) => {
        const raw = this.plot.series[column(i, VALUE)];
        if (raw) raw.alpha = each.smoothing > 0 ? 0.3 : 1;
      });
    }
    this.plot.setData(data, true);
    this.reportCursor();
  }

  get isEmpty(): boolean {
    return this.plot.data[0].length === 0;
  }

  resize(): void {
    this.plot.setSize({ width: this.width(), height: this.options.height });
  }

  destroy(): void {
    this.plot.destroy();
  }

  private width(): number {
    return Math.max(120, this.element.clientWidth);
  }

  private xRange(plot: uPlot): uPlot.Range.MinMax {
    // Computed from the points: around a single one uPlot would show years, or twice its step.
    const { from, to } = this.options.range() ?? extentOf(plot.data[0], this.options.axis);
    return [from, to];
  }

  private extremes(plot: uPlot, low: number | null, high: number | null) {
    const trimmed = this.options.trim() ? trimmedExtremes(plot.data) : null;
    return trimmed ?? ([low, high] as const);
  }

  private reset(): null {
    this.options.onRange(null);
    return null;
  }

  private selected(): void {
    const { left, width } = this.plot.select;
    if (width === 0) return;
    this.plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (width < MIN_DRAG) return;
    const from = this.plot.posToVal(left, "x");
    const to = this.plot.posToVal(left + width, "x");
    if (this.options.axis !== "step") this.options.onRange({ from, to });
    else if (Math.floor(to) > Math.ceil(from)) {
      this.options.onRange({ from: Math.ceil(from), to: Math.floor(to) });
    }
  }

  private reportCursor(): void {
    const at = this.plot.cursor.idx;
    const { markers, axis, curves, onCursor } = this.options;
    onCursor(
      typeof at === "number" ? (this.plot.data[0][at] ?? null) : null,
      markersAt(this.plot, markers(), axis, curves[0]),
      this.points,
    );
  }
}

function column(curve: number, part: number): number {
  return 1 + curve * COLUMNS_PER_CURVE + part;
}

function isMove(type: string): boolean {
  return type === "mousemove" || type === "mouseleave";
}

function spreadBand(i: number, color: string): uPlot.Band {
  return { series: [column(i, MAX), column(i, MIN)], fill: tinted(color, 22) };
}

/** Fills down to the previous area; the series of the first fills to the zero line by itself. */
function stackBand(i: number, color: string): uPlot.Band | [] {
  if (i === 0) return [];
  return { series: [column(i, VALUE), column(i - 1, VALUE)], fill: tinted(color, STACK_TINT) };
}

function tinted(color: string, share: number): string {
  return `color-mix(in srgb, ${color} ${share}%, transparent)`;
}

function lines(
  curve: Curve,
  stroke: string,
  stacked: boolean,
  lowest: boolean,
  scattered: () => boolean,
): uPlot.Series[] {
  const invisible: uPlot.Series = { stroke: "transparent", width: 0, points: { show: false } };
  const shared = { label: curve.label, stroke, ...(curve.dash ? { dash: curve.dash } : {}) };
  if (stacked) {
    const area: uPlot.Series = { ...shared, width: 1, points: { show: isSinglePoint } };
    if (lowest) area.fill = tinted(stroke, STACK_TINT);
    return [invisible, invisible, area, invisible];
  }
  const points = {
    show: (plot: uPlot) => curve.dots || scattered() || isSinglePoint(plot),
    size: 5,
    stroke,
    fill: stroke,
  };
  const paths: uPlot.Series.PathBuilder = (plot, ...place) =>
    scattered() ? null : (uPlot.paths.linear?.()(plot, ...place) ?? null);
  const width = curve.thin ? 1 : 1.5;
  // The band of a spike is narrower than a pixel and would be invisible without edges.
  const edge: uPlot.Series = { stroke: tinted(stroke, 45), width: 1, points: { show: false } };
  return [
    edge,
    edge,
    { ...shared, width, points, paths },
    { ...shared, width: width + 0.5, points: { show: false } },
  ];
}

/** Whether there is a single point, which is drawn as a dot since it makes no line. */
function isSinglePoint(plot: uPlot): boolean {
  return plot.data[0].length < 2;
}

/** The look of an axis. */
export function axisLook(dark: boolean): uPlot.Axis {
  const stroke = dark ? "#9aa3ad" : "#6b7480";
  const grid = { stroke: dark ? "rgba(255,255,255,0.06)" : "rgba(20,30,50,0.07)", width: 1 };
  return { stroke, grid, ticks: { ...grid, size: 4 }, font: "11px system-ui, sans-serif" };
}

function horizontal(dark: boolean, axis: Axis): uPlot.Axis {
  // Over wall time the date is shown below the time.
  const x: uPlot.Axis = { ...axisLook(dark), size: axis === "time" ? 40 : 28 };
  if (axis === "step") {
    x.values = (_, ticks) => ticks.map((tick) => tick.toLocaleString("en-US"));
    x.incrs = STEP_TICKS;
    x.space = 64;
  } else if (axis === "elapsed") {
    x.values = (_, ticks) => ticks.map((tick) => positionText(tick, axis));
    x.incrs = SECOND_TICKS;
    x.space = 64;
  } else if (axis === "time") {
    x.values = (_, ticks, __, ___, distance) => timesOfDay(ticks, distance);
  } else {
    const name = metricOf(axis) ?? "";
    const labels = name.endsWith("_bytes") ? byteTicks : each(formatOf(name));
    x.values = (_, ticks) => labels(ticks);
    x.space = 72;
  }
  return x;
}

/** Labels of wall time: the time of day, with the date below where it is another one. */
function timesOfDay(ticks: readonly number[], distance: number): string[] {
  let before = "";
  return ticks.map((tick) => {
    const [date = "", time = ""] = dateAndTime(tick * 1000).split(" ");
    const label = distance < 60 ? time : time.slice(0, 5);
    const isOther = date !== before;
    before = date;
    return distance >= 86_400 ? date : isOther ? `${label}\n${date}` : label;
  });
}

type Labels = (ticks: readonly number[]) => string[];

/** On a logarithmic axis some ticks have no label: they are null. */
export function vertical(dark: boolean, labels: Labels): uPlot.Axis {
  return {
    ...axisLook(dark),
    size: 62,
    values: (_, ticks: (number | null)[]) => {
      const texts = labels(ticks.filter((tick) => tick !== null));
      return ticks.map((tick) => (tick === null ? "" : (texts.shift() ?? "")));
    },
    ...(labels === byteTicks ? { incrs: BYTE_TICKS } : {}),
  };
}

export function each(format: (value: number) => string): Labels {
  return (ticks) => ticks.map(format);
}

export function linearRange(
  least: number | null,
  most: number | null,
  limits: readonly number[],
): uPlot.Range.MinMax {
  if (least === null || most === null) return [0, 1];
  const low = Math.min(least, ...limits);
  const high = Math.max(most, ...limits);
  if (low === high) {
    const padding = Math.abs(low) * 0.1;
    return low === 0 ? [0, 1] : [low - padding, high + padding];
  }
  const padding = (high - low) * 0.06;
  const bottom = low >= 0 && low - padding < 0 ? 0 : low - padding;
  return [bottom, limits.includes(high) ? high : high + padding];
}

function stackRange(_: uPlot, __: number | null, high: number | null): uPlot.Range.MinMax {
  return [0, high === null || high <= 0 ? 1 : high * 1.05];
}

export function logRange(_: uPlot, low: number | null, high: number | null): uPlot.Range.MinMax {
  if (low === null || high === null || !(high > 0)) return [0.1, 1];
  return uPlot.rangeLog(low > 0 ? low : high / 1e6, high, 10, false);
}
