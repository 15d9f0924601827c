import { ActionIcon, Tooltip, useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import "uplot/dist/uPlot.min.css";
import { count, metric } from "../format";
import { DownIcon } from "../ui/icons";
import type { Axis, Range } from "./axis";
import classes from "./chart.module.css";
import { curvesCsv, saveText } from "./csv";
import { type Curve, hasPoints, identityOf, seriesOf } from "./curve";
import { useLingering, useOnScreen, whenThereIsTime } from "./on-screen";
import { clock, Plot, type Under } from "./plot";

interface Props {
  title: string;
  curves: Curve[];
  axis: Axis;
  /** 0 to 1; how much of the past a smoothed value holds. */
  smoothing: number;
  logarithmic?: boolean;
  /** Areas on top of each other instead of lines. */
  stacked?: boolean;
  /** Values are bytes. */
  binary?: boolean;
  /** Values that are always in sight, as 0 and 100 of a share. */
  limits?: readonly number[];
  format?: (value: number | null) => string;
  /** Charts with the same key share their cursor. */
  syncKey: string;
  /** The part of the axis that is shown; null: all of it. */
  range?: Range | null;
  onRange?: (range: Range | null) => void;
  /** How often it is drawn anew at most, in milliseconds. */
  redrawMs?: number;
}

const HEIGHT = 220;
const REDRAW_MS = 150;

/**
 * One panel of curves. The plot is created once for its options, gets new points by `setData` only,
 * and is destroyed while it is off screen.
 */
export function Chart(props: Props) {
  const { title, curves, syncKey, axis, range = null } = props;
  const [frame, onScreen] = useOnScreen<HTMLElement>();
  const lives = useLingering(onScreen);
  const isSeen = useRef(onScreen);
  isSeen.current = onScreen;
  const draw = useRef<(() => void) | null>(null);
  const values = useRef<(HTMLElement | null)[]>([]);
  const place = useRef<HTMLSpanElement>(null);
  const empty = useRef<HTMLDivElement>(null);
  const host = useRef<HTMLDivElement>(null);
  const scheme = useComputedColorScheme("light");
  const latest = useRef(props);
  latest.current = props;
  // What changes the plot itself, as opposed to what is drawn in it.
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
    if (!lives || element === null) return;
    const format = (value: number | null) => (latest.current.format ?? metric)(value);
    const write = (at: number | null, under: (Under | null)[]): void => {
      if (place.current) place.current.textContent = at === null ? "" : told(at, axis);
      curves.forEach((curve, i) => {
        const cell = values.current[i];
        if (!cell) return;
        const value = under[i]?.value ?? seriesOf(curve)?.last?.value ?? null;
        const spread = curves.length === 1 ? spreadOf(under[i] ?? null, format) : "";
        cell.textContent = format(value) + spread;
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
        range: () => latest.current.range ?? null,
        onRange: (chosen) => latest.current.onRange?.(chosen),
        onCursor: write,
      });
    let plot: Plot | null = null;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let takeBack: (() => void) | undefined;
    const show = (): void => {
      timer = undefined;
      // What nobody sees is drawn when it is seen again.
      if (!isSeen.current) return;
      takeBack?.();
      takeBack = whenThereIsTime(() => {
        if (plot === null) plot = make();
        else plot.draw();
        if (empty.current) empty.current.hidden = !plot.isEmpty;
      });
    };
    const soon = (): void => {
      timer ??= setTimeout(show, latest.current.redrawMs ?? REDRAW_MS);
    };
    draw.current = show;
    show();
    const stores = [...new Set(curves.map((curve) => curve.store))];
    const leave = stores.map((store) => store.subscribe(soon));
    const resizes = new ResizeObserver(() => plot?.resize());
    resizes.observe(element);
    return () => {
      draw.current = null;
      clearTimeout(timer);
      takeBack?.();
      for (const each of leave) each();
      resizes.disconnect();
      plot?.destroy();
    };
  }, [lives, identity]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: they are read through the ref
  useEffect(() => draw.current?.(), [onScreen, props.smoothing, range?.from, range?.to]);

  return (
    <figure className={classes.panel} ref={frame} data-chart={title}>
      <figcaption className={classes.caption}>
        <span className={classes.title}>{title}</span>
        <span className={classes.place} ref={place} />
        <Tooltip label="Save the points as CSV" openDelay={300}>
          <ActionIcon
            variant="subtle"
            color="gray"
            size="xs"
            className={classes.save ?? ""}
            aria-label={`Save ${title} as CSV`}
            onClick={() => saveText(`${syncKey}-${slug(title)}.csv`, csv(curves))}
          >
            <DownIcon />
          </ActionIcon>
        </Tooltip>
        <span className={classes.keys}>
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
        <div ref={host} role="img" aria-label={`${title} over ${AXIS_NAMES[axis]}`} />
        <div ref={empty} className={classes.empty} hidden={curves.some(hasPoints)}>
          {range === null ? "no points yet" : "no points in this range"}
        </div>
      </div>
    </figure>
  );
}

const AXIS_NAMES: Record<Axis, string> = {
  step: "steps",
  time: "wall clock",
  elapsed: "time since the start",
};

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
        <svg width="14" height="4" aria-hidden="true" className={classes.swatch}>
          <line
            x1="0"
            x2="14"
            y1="2"
            y2="2"
            stroke={curve.color}
            strokeWidth={curve.thin ? 2 : 3}
            strokeDasharray={curve.dash?.map((length) => length / 2).join(" ")}
          />
        </svg>
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

function spreadOf(under: Under | null, format: (value: number | null) => string): string {
  if (!under || under.min === null || under.max === null || under.min === under.max) return "";
  return ` (${format(under.min)} to ${format(under.max)})`;
}

/** Where the cursor is. */
function told(at: number, axis: Axis): string {
  if (axis === "step") return `step ${count(Math.round(at))}`;
  if (axis === "elapsed") return clock(at);
  return new Date(at * 1000).toLocaleTimeString();
}

function csv(curves: Curve[]): string {
  const several = new Set(curves.map((curve) => curve.store.id)).size > 1;
  return curvesCsv(
    curves.map((curve) => {
      const { name, rank = null, label } = curve;
      const own = rank === null ? name : `${name} of rank ${rank}`;
      return { name: several ? `${own} of ${label}` : own, series: seriesOf(curve) };
    }),
  );
}

function slug(title: string): string {
  return title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
}
