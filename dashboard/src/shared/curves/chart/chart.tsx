import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import "uplot/dist/uPlot.min.css";
import { type Axis, metricOf, type Range } from "@/shared/curves/data/axis";
import { curvesCsv, saveCsv } from "@/shared/curves/data/csv";
import {
  type Curve,
  hasPoints,
  identityOf,
  type Points,
  runsOf,
  seriesOf,
} from "@/shared/curves/data/curve";
import { metric } from "@/shared/format";
import { slug } from "@/shared/save-file";
import { IconButton } from "@/shared/ui/icon-button";
import { DownIcon } from "@/shared/ui/icons";
import classes from "./chart.module.css";
import { legendOrder, legendText, positionText } from "./legend";
import type { Marker } from "./markers";
import { scheduleWork, useLingering, useOnScreen } from "./on-screen";
import { type Pin, PinButtons } from "./pin-buttons";
import { Plot } from "./plot";
import { PngButton } from "./png-button";
import { Swatch } from "./swatch";

interface Props {
  title: string;
  curves: Curve[];
  axis: Axis;
  /** Weight of the past in a smoothed value, 0 to 1. */
  smoothing: number;
  logarithmic?: boolean;
  /** The vertical axis leaves out outliers, unless it is logarithmic. */
  trim?: boolean;
  /** Areas on top of each other instead of lines. */
  stacked?: boolean;
  /** Values are bytes. */
  binary?: boolean;
  /** Values that the vertical axis always includes, as 0 and 100 of a share. */
  limits?: readonly number[];
  format?: (value: number | null) => string;
  /** Charts with the same key share their cursor. */
  syncKey: string;
  /** The part of the axis that is shown; null: all of it. */
  range?: Range | null;
  onRange?: (range: Range | null) => void;
  /** What happened to the job, drawn in the chart. */
  markers?: readonly Marker[];
  /** Left out: it cannot be pinned. */
  pin?: Pin;
  /** Minimum time between two redraws, in milliseconds. */
  redrawMs?: number;
}

const HEIGHT = 220;
/** So many keys have room above any plot. */
const FEW_KEYS = 3;
const REDRAW_MS = 150;

/**
 * A chart of curves. The plot is created once for its options, gets new points by `setData` only, and
 * is destroyed while it is off screen.
 */
export function Chart(props: Props) {
  const { title, curves, syncKey, axis, range = null } = props;
  const [frame, onScreen] = useOnScreen<HTMLElement>();
  const isMounted = useLingering(onScreen);
  const isSeen = useRef(onScreen);
  isSeen.current = onScreen;
  const draw = useRef<(() => void) | null>(null);
  const values = useRef<(HTMLElement | null)[]>([]);
  const cursorLabel = useRef<HTMLSpanElement>(null);
  const markLabel = useRef<HTMLDivElement>(null);
  const empty = useRef<HTMLDivElement>(null);
  const host = useRef<HTMLDivElement>(null);
  const scheme = useComputedColorScheme("light");
  const latest = useRef(props);
  latest.current = props;
  // The options of the plot itself, as opposed to the data drawn in it.
  const identity = JSON.stringify([
    curves.map(identityOf),
    syncKey,
    axis,
    props.logarithmic,
    props.stacked,
    props.limits,
    scheme,
  ]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: identity stands for the options
  useEffect(() => {
    const element = host.current;
    if (!isMounted || element === null) return;
    const format = (value: number | null) => (latest.current.format ?? metric)(value);
    const showCursor = (at: number | null, marks: string, points: readonly Points[]): void => {
      if (cursorLabel.current) {
        cursorLabel.current.textContent = at === null ? "" : positionText(at, axis);
      }
      if (markLabel.current) markLabel.current.textContent = marks;
      const order = legendOrder(points, at);
      points.forEach((each, i) => {
        const cell = values.current[i];
        if (!cell) return;
        cell.textContent = legendText(each, axis, at, format, curves.length === 1);
        if (cell.parentElement) cell.parentElement.style.order = String(order.indexOf(i));
      });
    };
    const make = () =>
      new Plot(element, {
        curves,
        axis,
        syncKey,
        logarithmic: props.logarithmic ?? false,
        stacked: props.stacked ?? false,
        binary: props.binary ?? false,
        limits: props.limits ?? [],
        dark: scheme === "dark",
        height: HEIGHT,
        format,
        smoothing: () => latest.current.smoothing,
        trim: () => latest.current.trim ?? false,
        range: () => latest.current.range ?? null,
        onRange: (chosen) => latest.current.onRange?.(chosen),
        markers: () => latest.current.markers ?? [],
        onCursor: showCursor,
      });
    let plot: Plot | null = null;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let cancelDraw: (() => void) | undefined;
    const show = (): void => {
      timer = undefined;
      // Off screen: drawn when it is visible again.
      if (!isSeen.current) return;
      cancelDraw?.();
      cancelDraw = scheduleWork(() => {
        if (plot === null) plot = make();
        else plot.draw();
        if (empty.current) empty.current.hidden = !plot.isEmpty;
      });
    };
    const scheduleDraw = (): void => {
      timer ??= setTimeout(show, latest.current.redrawMs ?? REDRAW_MS);
    };
    draw.current = show;
    show();
    const stores = [...new Set(curves.flatMap(runsOf).map((curve) => curve.store))];
    const unsubscribe = stores.map((store) => store.subscribe(scheduleDraw));
    const resizes = new ResizeObserver(() => plot?.resize());
    resizes.observe(element);
    return () => {
      draw.current = null;
      clearTimeout(timer);
      cancelDraw?.();
      for (const each of unsubscribe) each();
      resizes.disconnect();
      plot?.destroy();
    };
  }, [isMounted, identity]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: read through the ref
  useEffect(
    () => draw.current?.(),
    [onScreen, props.smoothing, props.markers, range?.from, range?.to],
  );

  return (
    <figure className={`app-card ${classes.panel}`} ref={frame} data-chart={title}>
      <figcaption className={classes.caption}>
        <span className={classes.title}>{title}</span>
        <span className={classes.cursor} ref={cursorLabel} />
        <span className={classes.commands}>
          {props.pin ? <PinButtons title={title} pin={props.pin} /> : null}
          <IconButton
            label="Download as CSV"
            name={`Download ${title} as CSV`}
            size="xs"
            onClick={() => saveCsv(`${syncKey}-${slug(title)}.csv`, csv(curves))}
          >
            <DownIcon />
          </IconButton>
          <PngButton
            title={title}
            keys={curves.filter(({ label }) => label !== "")}
            axis={axisName(axis)}
            file={`${syncKey}-${slug(title)}`}
          />
        </span>
        {/* Many keys scroll, which must be possible by keyboard, too. */}
        <span className={classes.keys} {...(curves.length > FEW_KEYS ? { tabIndex: 0 } : {})}>
          {curves.map((curve, i) => (
            <Key
              key={`${curve.store.id}/${curve.name}/${curve.rank ?? ""}`}
              curve={curve}
              alone={curves.length === 1}
              format={props.format ?? metric}
              valueRef={(element) => {
                values.current[i] = element;
              }}
            />
          ))}
        </span>
      </figcaption>
      <div className={classes.plot} style={{ height: HEIGHT }}>
        <div ref={host} role="img" aria-label={`${title} over ${axisName(axis)}`} />
        <div ref={markLabel} className={classes.marks} />
        <div ref={empty} className={classes.empty} hidden={curves.some(hasPoints)}>
          {range === null ? NO_POINTS[Number(metricOf(axis) !== null)] : "no points in this range"}
        </div>
      </div>
    </figure>
  );
}

/** On an axis of steps or times, and on one of a metric. */
const NO_POINTS = ["no points yet", "no points with both metrics"] as const;

function axisName(axis: Axis): string {
  if (axis === "time") return "wall time";
  return axis === "elapsed" ? "relative time" : (metricOf(axis) ?? "step");
}

interface KeyProps {
  curve: Curve;
  alone: boolean;
  format: (value: number | null) => string;
  valueRef: (element: HTMLElement | null) => void;
}

function Key({ curve, alone, format, valueRef }: KeyProps) {
  return (
    <span className={classes.key}>
      {alone && curve.label === "" ? null : (
        <Swatch look={curve} strokeWidth={curve.thin ? 2 : 3} />
      )}
      {curve.label === "" ? null : (
        <span className={classes.label} title={curve.label}>
          {curve.label}
        </span>
      )}
      <span className={classes.value} ref={valueRef}>
        {format(seriesOf(curve)?.last?.value ?? null)}
      </span>
    </span>
  );
}

function csv(curves: Curve[]): string {
  const runs = curves.flatMap(runsOf);
  const several = new Set(runs.map((curve) => curve.store.id)).size > 1;
  return curvesCsv(
    runs.map((curve) => {
      const { name, rank = null, label } = curve;
      const own = rank === null ? name : `${name} of rank ${rank}`;
      return { name: several ? `${own} of ${label}` : own, series: seriesOf(curve) };
    }),
  );
}
