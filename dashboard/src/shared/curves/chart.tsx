import { ActionIcon, Tooltip, useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { metric } from "../format";
import { DownIcon } from "../ui/icons";
import classes from "./chart.module.css";
import { type Axis, COLUMNS_PER_CURVE, chartData } from "./columns";
import { curvesCsv, saveText } from "./csv";
import { useOnScreen } from "./on-screen";
import type { CurveStore } from "./store";

export interface Curve {
  name: string;
  rank?: number | null;
  label: string;
  /** CSS colour. */
  color: string;
  /** Few points: draw each. */
  dots?: boolean;
  /** Has no noise that smoothing could take away. */
  exact?: boolean;
}

interface Props {
  title: string;
  store: CurveStore;
  curves: Curve[];
  axis: Axis;
  /** 0 to 1; how much of the past a smoothed value holds. */
  smoothing: number;
  logarithmic?: boolean;
  format?: (value: number | null) => string;
  /** Charts with the same key share their cursor. */
  syncKey: string;
}

const HEIGHT = 220;
const REDRAW_MS = 150;

/**
 * One panel of curves. The plot is created once for its options, gets new points by `setData` only,
 * and is destroyed while it is off screen.
 */
export function Chart(props: Props) {
  const { title, store, curves, syncKey } = props;
  const format = props.format ?? metric;
  const [frame, onScreen] = useOnScreen<HTMLElement>();
  const values = useRef<(HTMLElement | null)[]>([]);
  const empty = useRef<HTMLDivElement>(null);
  const host = useRef<HTMLDivElement>(null);
  const scheme = useComputedColorScheme("light");
  const latest = useRef(props);
  latest.current = props;
  // What changes the plot itself, as opposed to what is drawn in it.
  const identity = JSON.stringify([
    curves,
    syncKey,
    props.axis,
    props.logarithmic ?? false,
    scheme,
  ]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: identity stands for the options
  useEffect(() => {
    const element = host.current;
    if (!onScreen || element === null) return;
    const { axis, logarithmic } = latest.current;
    let zoomed = false;
    const show = (plot: uPlot): void => {
      const at = plot.cursor.idx;
      curves.forEach((curve, i) => {
        const cell = values.current[i];
        if (!cell) return;
        const column = plot.data[1 + i * COLUMNS_PER_CURVE + 2];
        const under = at === null || at === undefined ? undefined : column?.[at];
        const value = under ?? store.get(curve.name, curve.rank ?? null)?.last?.value ?? null;
        cell.textContent = (latest.current.format ?? metric)(value);
      });
    };
    const plot = new uPlot(
      {
        width: Math.max(120, element.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: {
          sync: { key: syncKey },
          points: { size: 6 },
          drag: { x: true, y: false },
        },
        scales: {
          x: { time: axis === "time" },
          y: { distr: logarithmic ? 3 : 1, range: logarithmic ? logRange : linearRange },
        },
        axes: axes(scheme, axis, (value) => (latest.current.format ?? metric)(value)),
        series: [{}, ...curves.flatMap(lines)],
        bands: curves.map((curve, i) => ({
          series: [2 + i * COLUMNS_PER_CURVE, 1 + i * COLUMNS_PER_CURVE],
          fill: `color-mix(in srgb, ${resolved(curve.color)} 16%, transparent)`,
        })),
        hooks: {
          setCursor: [show],
          setSelect: [(self) => (zoomed = self.select.width > 0)],
          ready: [(self) => self.over.addEventListener("dblclick", () => (zoomed = false))],
        },
      },
      chartData([], axis),
      element,
    );
    let timer: ReturnType<typeof setTimeout> | undefined;
    const draw = (): void => {
      timer = undefined;
      const now = latest.current;
      const drawn = curves.map((curve) => ({
        series: store.get(curve.name, curve.rank ?? null),
        smoothing: curve.exact ? 0 : now.smoothing,
      }));
      const data = chartData(drawn, axis);
      if (empty.current) empty.current.hidden = data[0].length > 0;
      drawn.forEach(({ smoothing }, i) => {
        const raw = plot.series[1 + i * COLUMNS_PER_CURVE + 2];
        if (raw) raw.alpha = smoothing > 0 ? 0.3 : 1;
      });
      plot.setData(data, !zoomed);
      if (zoomed) plot.redraw();
      show(plot);
    };
    const soon = (): void => {
      timer ??= setTimeout(draw, REDRAW_MS);
    };
    draw();
    redraw.current = draw;
    const unsubscribe = store.subscribe(soon);
    const resizes = new ResizeObserver(() => {
      plot.setSize({ width: Math.max(120, element.clientWidth), height: HEIGHT });
    });
    resizes.observe(element);
    return () => {
      redraw.current = null;
      clearTimeout(timer);
      unsubscribe();
      resizes.disconnect();
      plot.destroy();
    };
  }, [onScreen, store, identity]);

  const redraw = useRef<(() => void) | null>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: smoothing is read through the ref
  useEffect(() => redraw.current?.(), [props.smoothing]);

  return (
    <figure className={classes.panel} ref={frame} data-chart={title}>
      <figcaption className={classes.caption}>
        <span className={classes.title}>{title}</span>
        {curves.map((curve, i) => (
          <span key={`${curve.name}/${curve.rank ?? ""}`} className={classes.key}>
            <span className={classes.swatch} style={{ background: curve.color }} aria-hidden />
            {curve.label}
            <span
              className={classes.value}
              ref={(element) => {
                values.current[i] = element;
              }}
            >
              {format(store.get(curve.name, curve.rank ?? null)?.last?.value ?? null)}
            </span>
          </span>
        ))}
        <Tooltip label="Save the points as CSV" openDelay={300}>
          <ActionIcon
            variant="subtle"
            color="gray"
            size="xs"
            className={classes.save ?? ""}
            aria-label={`Save ${title} as CSV`}
            onClick={() => saveText(`${syncKey}-${slug(title)}.csv`, csv(store, curves))}
          >
            <DownIcon />
          </ActionIcon>
        </Tooltip>
      </figcaption>
      <div className={classes.plot} style={{ height: HEIGHT }}>
        <div ref={host} role="img" aria-label={`${title} over ${props.axis}`} />
        <div ref={empty} className={classes.empty} hidden={hasPoints(store, curves)}>
          no points yet
        </div>
      </div>
    </figure>
  );
}

function csv(store: CurveStore, curves: Curve[]): string {
  return curvesCsv(
    curves.map(({ name, rank = null }) => ({
      name: rank === null ? name : `${name} of rank ${rank}`,
      series: store.get(name, rank),
    })),
  );
}

function slug(title: string): string {
  return title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
}

function hasPoints(store: CurveStore, curves: Curve[]): boolean {
  return curves.some((curve) => (store.get(curve.name, curve.rank ?? null)?.length ?? 0) > 0);
}

function lines(curve: Curve): uPlot.Series[] {
  const stroke = resolved(curve.color);
  const invisible: uPlot.Series = { stroke: "transparent", width: 0, points: { show: false } };
  return [
    invisible,
    invisible,
    { label: curve.label, stroke, width: 1.5, points: dots(curve, stroke) },
    { label: `${curve.label}, smoothed`, stroke, width: 2, points: { show: false } },
  ];
}

function dots(curve: Curve, stroke: string): uPlot.Series.Points {
  return curve.dots ? { show: true, size: 5, stroke, fill: stroke } : { show: lonely };
}

/** A single point makes no line, so it is drawn as a dot. */
function lonely(plot: uPlot): boolean {
  return plot.data[0].length < 2;
}

/** A canvas can't read CSS variables. */
function resolved(color: string): string {
  const name = /^var\((--[\w-]+)\)$/.exec(color)?.[1];
  if (name === undefined) return color;
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "gray";
}

function axes(scheme: string, axis: Axis, format: (value: number) => string): uPlot.Axis[] {
  const dark = scheme === "dark";
  const stroke = dark ? "#9aa3ad" : "#6b7480";
  const grid = { stroke: dark ? "rgba(255,255,255,0.06)" : "rgba(20,30,50,0.07)", width: 1 };
  const shared = { stroke, grid, ticks: { ...grid, size: 4 }, font: "11px system-ui, sans-serif" };
  const x: uPlot.Axis = { ...shared, size: 28 };
  if (axis === "step") {
    x.values = (_, ticks) => ticks.map((tick) => tick.toLocaleString("en-US"));
    x.incrs = [1, 2, 5]
      .flatMap((n) => Array.from({ length: 13 }, (_, i) => n * 10 ** i))
      .sort((a, b) => a - b);
  }
  return [
    x,
    { ...shared, size: 62, values: (_, ticks) => ticks.map((t) => (t === null ? "" : format(t))) },
  ];
}

function linearRange(_: uPlot, low: number | null, high: number | null): uPlot.Range.MinMax {
  if (low === null || high === null) return [0, 1];
  if (low === high)
    return low === 0 ? [0, 1] : [low - Math.abs(low) * 0.1, high + Math.abs(high) * 0.1];
  const room = (high - low) * 0.06;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

function logRange(_: uPlot, low: number | null, high: number | null): uPlot.Range.MinMax {
  if (low === null || high === null || !(high > 0)) return [0.1, 1];
  return uPlot.rangeLog(low > 0 ? low : high / 1e6, high, 10, false);
}
