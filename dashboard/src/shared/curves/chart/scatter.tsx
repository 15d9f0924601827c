import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { metric } from "@/shared/format";
import classes from "./chart.module.css";
import { useOnScreen } from "./on-screen";
import { look } from "./palette";
import { axisLook, each, linearRange, resolved, STEP_TICKS, vertical } from "./plot";
import { Swatch } from "./swatch";
import { powersOfTen, spaced } from "./ticks";

export interface ScatterPoint {
  x: number;
  y: number;
  /** Shown for the point under the pointer. */
  label: string;
}

export type ScatterAxis =
  | { kind: "whole"; label: string }
  /** `tried`: the few values that there can be, which are its ticks. */
  | { kind: "linear" | "log"; label: string; tried?: readonly number[] | undefined }
  /** Positions are indexes of the names. */
  | { kind: "category"; label: string; names: readonly string[] };

interface Props {
  title: string;
  axis: ScatterAxis;
  /** Shown while there are no points: "no values yet". */
  empty: string;
  /** In the order of x. */
  points: readonly ScatterPoint[];
  /** A stepped line over the points, one value for each. */
  line?: { label: string; values: readonly (number | null)[] } | undefined;
  /** A point was clicked. */
  onOpen?: (index: number) => void;
}

const HEIGHT = 220;
const LINE = look(1);
/** Distance in pixels within which the pointer is at a point. */
const REACH = 24;

/** A chart of single points, in the look of the charts of curves. */
export function Scatter(props: Props) {
  const { title, axis, empty, points, line } = props;
  const [frame, onScreen] = useOnScreen<HTMLElement>();
  const host = useRef<HTMLDivElement>(null);
  const scheme = useComputedColorScheme("light");
  const [hovered, setHovered] = useState<number | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const drawn = JSON.stringify([axis, points, line, scheme]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: drawn stands for what is drawn
  useEffect(() => {
    const element = host.current;
    if (!onScreen || element === null || points.length === 0) return;
    const options = optionsOf(props, scheme === "dark", width(element));
    const plot = new uPlot(
      {
        ...options,
        hooks: { setCursor: [(self) => setHovered(nearest(self, latest.current.points))] },
      },
      dataOf(props),
      element,
    );
    const open = (): void => {
      const at = nearest(plot, latest.current.points);
      if (at !== null) latest.current.onOpen?.(at);
    };
    plot.over.addEventListener("click", open);
    const resizes = new ResizeObserver(() =>
      plot.setSize({ width: width(element), height: HEIGHT }),
    );
    resizes.observe(element);
    return () => {
      resizes.disconnect();
      plot.destroy();
      setHovered(null);
    };
  }, [onScreen, drawn]);

  return (
    <figure className={`app-card ${classes.panel}`} ref={frame} data-chart={title}>
      <figcaption className={classes.caption}>
        <span className={classes.title}>{title}</span>
        <span className={classes.cursor} style={{ gridColumn: "2 / -1" }}>
          {hovered !== null ? (
            points[hovered]?.label
          ) : line && points.length > 0 ? (
            <span className={classes.key}>
              <Swatch look={LINE} strokeWidth={3} /> {line.label}
            </span>
          ) : null}
        </span>
      </figcaption>
      <div
        className={classes.plot}
        style={{ height: HEIGHT, cursor: hovered === null ? undefined : "pointer" }}
      >
        <div ref={host} role="img" aria-label={title} />
        <div className={classes.empty} hidden={points.length > 0}>
          {empty}
        </div>
      </div>
    </figure>
  );
}

function dataOf({ points, line }: Props): uPlot.AlignedData {
  const x = points.map((point) => point.x);
  const y = points.map((point) => point.y);
  return line ? [x, y, [...line.values]] : [x, y];
}

function optionsOf({ axis, line }: Props, dark: boolean, width: number): uPlot.Options {
  const color = resolved(look(0).color);
  const dots: uPlot.Series = {
    stroke: color,
    paths: () => null,
    points: { show: true, space: 0, size: 7, fill: color },
  };
  const steps: uPlot.Series = {
    stroke: resolved(LINE.color),
    width: 1.5,
    points: { show: false },
    ...(uPlot.paths.stepped ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
  };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { points: { show: false }, x: false, y: false, drag: { x: false, y: false } },
    scales: {
      x: {
        time: false,
        distr: axis.kind === "log" ? 3 : 1,
        // From the points: uPlot would show twice the value of a single one.
        range: ({ data: [x] }) => xRange(axis, x[0], x.at(-1)),
      },
      y: { range: (_, low, high) => linearRange(low, high, []) },
    },
    axes: [horizontal(axis, dark), vertical(dark, each(metric))],
    series: [{}, dots, ...(line ? [steps] : [])],
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

function horizontal(axis: ScatterAxis, dark: boolean): uPlot.Axis {
  const x: uPlot.Axis = {
    ...axisLook(dark),
    size: 28,
    space: 56,
    values: (_, ticks: (number | null)[]) =>
      ticks.map((tick) => (tick === null ? "" : metric(tick))),
  };
  if (axis.kind === "whole") x.incrs = STEP_TICKS;
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

function width(element: HTMLElement): number {
  return Math.max(120, element.clientWidth);
}

/** The point at the pointer, if one is within reach. */
function nearest(plot: uPlot, points: readonly ScatterPoint[]): number | null {
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
