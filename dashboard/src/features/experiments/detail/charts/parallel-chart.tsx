import { useElementSize } from "@mantine/hooks";
import { type MouseEvent, memo, useMemo } from "react";
import chart from "@/shared/curves/chart/chart.module.css";
import { PngButton } from "@/shared/curves/chart/png-button";
import { metric } from "@/shared/format";
import type { Configuration } from "../trials";
import type { TrialAxis } from "./axes";
import { AxisBrush, type BrushRange } from "./axis-brush";
import { groupsOf } from "./fates";
import {
  groupsByRank,
  lineAt,
  linesOf,
  type ParallelLine,
  pathOf,
  type ScaledAxis,
  scaled,
  ticksOf,
} from "./parallel";
import classes from "./parallel-chart.module.css";
import type { Brush } from "./selection";

interface Props {
  axes: readonly TrialAxis[];
  configurations: readonly Configuration[];
  goal: string;
  brush: Brush | undefined;
  /** Numbers of the trials that stand out; null: all. */
  selected: ReadonlySet<number> | null;
  hovered: number | null;
  onHover: (number: number | null) => void;
  onPick: (number: number) => void;
  onBrush: (axis: string, range: BrushRange | null) => void;
}

const HEIGHT = 250;
const TOP = 34;
const BOTTOM = HEIGHT - 12;
/** Least and most space for the labels beside the first and the last axis. */
const [SIDE, MOST_SIDE] = [56, 120];
/** Pixels of a letter of a label, at most. */
const LETTER = 6.6;
const MIN_GAP = 96;
/** Distance in pixels within which the pointer is at a line. */
const REACH = 8;
/** Groups of trials by the rank of their objective, with a colour each. */
const GROUPS = 5;
/** The best are drawn last, on top of the others. */
const BEST_FIRST = Array.from({ length: GROUPS }, (_, group) => group);

const y = (share: number) => BOTTOM - share * (BOTTOM - TOP);
const shareAt = (at: number) => Math.min(1, Math.max(0, (BOTTOM - at) / (BOTTOM - TOP)));

/** A line for each trial across an axis for each field and the objective. */
export function ParallelChart(props: Props) {
  const { axes, configurations, goal, brush, selected, hovered } = props;
  const { ref, width: given } = useElementSize();
  const onScale = useMemo(() => scaled(axes, configurations), [axes, configurations]);
  const side = useMemo(() => sideOf(onScale), [onScale]);
  const width = Math.max(given, 2 * side + (axes.length - 1) * MIN_GAP);
  const gap = axes.length > 1 ? (width - 2 * side) / (axes.length - 1) : 0;
  const x = (axis: number) => side + axis * gap;
  const lines = useMemo(() => linesOf(onScale, configurations), [onScale, configurations]);
  const xs = axes.map((_, i) => x(i));
  const pointed = ({ currentTarget, clientX, clientY }: MouseEvent<SVGElement>) => {
    const { left, top } = currentTarget.getBoundingClientRect();
    return lineAt(lines, xs, y, { x: clientX - left, y: clientY - top }, REACH);
  };
  return (
    <figure className={`app-card ${chart.panel}`} data-chart="parallel coordinates">
      <figcaption className={chart.caption}>
        <span className={`${chart.title} ${classes.title}`}>Parallel coordinates</span>
        <Legend axis={onScale.at(-1)} goal={goal} lines={lines} />
        <span className={chart.commands}>
          <PngButton title="Parallel coordinates" />
        </span>
        <span className={classes.hint}>Drag along an axis to select trials</span>
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <div ref={ref} className={classes.frame} tabIndex={0} data-plot>
        <Lines {...{ goal, lines, selected, side, gap, width }} />
        <svg
          width={width}
          height={HEIGHT}
          role="img"
          aria-label={`Trials over ${axes.map(({ scale }) => scale.label).join(", ")}`}
        >
          {hovered === null ? null : (
            <path
              d={pathOf(
                lines.filter(({ number }) => number === hovered),
                x,
                y,
              )}
              className={classes.hovered}
            />
          )}
          {/* biome-ignore lint/a11y/noStaticElementInteractions: the table is its keyboard form */}
          <rect
            width={width}
            height={HEIGHT}
            fill="transparent"
            onMouseMove={(event) => props.onHover(pointed(event))}
            onMouseLeave={() => props.onHover(null)}
            onClick={(event) => {
              const number = pointed(event);
              if (number !== null) props.onPick(number);
            }}
          />
          {onScale.map((axis, i) => (
            <AxisBrush
              key={axis.axis.id}
              axis={axis}
              x={x(i)}
              labels={i === 0 ? "left" : i === axes.length - 1 ? "right" : "between"}
              y={y}
              shareAt={shareAt}
              range={brush?.[axis.axis.id]}
              onRange={(range) => props.onBrush(axis.axis.id, range)}
            />
          ))}
        </svg>
      </div>
    </figure>
  );
}

interface LinesProps extends Pick<Props, "goal" | "selected"> {
  lines: readonly ParallelLine[];
  side: number;
  gap: number;
  width: number;
}

/** The lines of all trials in a layer of its own, which a hovered line does not draw again. */
const Lines = memo(function Lines(props: LinesProps) {
  const { goal, lines, selected, side, gap, width } = props;
  const shown = selected ? lines.filter(({ number }) => selected.has(number)) : lines;
  const path = (among: readonly ParallelLine[]) => pathOf(among, (axis) => side + axis * gap, y);
  const groupOf = groupsByRank(lines, goal, GROUPS);
  const ofGroup = (group: number | null) => shown.filter((line) => groupOf(line) === group);
  return (
    <svg width={width} height={HEIGHT} className={classes.lines} aria-hidden="true">
      {selected ? (
        <path d={path(lines)} className={classes.other} opacity={Math.min(0.1, 8 / lines.length)} />
      ) : null}
      <path d={path(ofGroup(null))} className={classes.unrated} />
      {BEST_FIRST.toReversed().flatMap((group) =>
        groupsOf(ofGroup(group).map(({ fate }) => fate)).map(({ fate }) => (
          <path
            key={`${group} ${fate}`}
            d={path(ofGroup(group).filter((line) => line.fate === fate))}
            className={classes.line}
            data-group={group}
            data-fate={fate}
          />
        )),
      )}
    </svg>
  );
});

/** Space for the longest label of the outer axes. */
function sideOf(axes: readonly ScaledAxis[]): number {
  const outer = [axes[0], axes.at(-1)].flatMap((axis) => (axis ? ticksOf(axis, BOTTOM - TOP) : []));
  const longest = Math.max(...outer.map(({ text }) => text.length));
  return Math.min(MOST_SIDE, Math.max(SIDE, longest * LETTER + 12));
}

interface LegendProps extends Pick<Props, "goal"> {
  axis: ScaledAxis | undefined;
  lines: readonly ParallelLine[];
}

/** The colours of the lines by their values of the objective, and the dashes of trials that have not
 * completed. */
function Legend({ axis, goal, lines }: LegendProps) {
  if (axis === undefined) return null;
  const { low, high } = axis;
  const [best, worst] = goal === "max" ? [high, low] : [low, high];
  const rated = lines.filter(({ at }) => at.at(-1) !== null);
  const others = groupsOf(rated.map(({ fate }) => fate)).filter(({ fate }) => fate !== "completed");
  // A value at a rung is not compared: it may not be the best.
  const isCompared = others.length === 0;
  return (
    <span className={classes.legend}>
      {axis.axis.scale.label}: {isCompared ? "best " : ""}
      {metric(best)}
      <span className={classes.scale} aria-hidden="true">
        {BEST_FIRST.map((group) => (
          <span key={group} className={classes.swatch} data-group={group} />
        ))}
      </span>
      {metric(worst)}
      {isCompared ? " worst" : ""}
      {others.map(({ fate }) => (
        <span key={fate} className={classes.key} title="Value at its last rung">
          <svg width={22} height={6} className={classes.dash} aria-hidden="true">
            <line x2={22} y1={3} y2={3} className={classes.line} data-fate={fate} />
          </svg>
          {fate}
        </span>
      ))}
    </span>
  );
}
