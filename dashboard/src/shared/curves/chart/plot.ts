import uPlot from "uplot";
import { type Axis, extentOf, type Range } from "@/shared/curves/data/axis";
import type { Curve, Points } from "@/shared/curves/data/curve";
import { isScattered, pointsOf } from "@/shared/curves/data/points";
import { byteTicks } from "@/shared/format";
import { each, horizontal, linearRange, logRange, stackRange, vertical } from "./axes";
import { COLUMNS_PER_CURVE, chartData, stackedData, trimmedExtremes } from "./columns";
import { type Marker, markerPlugin, markersAt } from "./markers";
import { resolved } from "./palette";

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
