import { useElementSize } from "@mantine/hooks";
import { type MouseEvent, memo, useMemo } from "react";
import chart from "@/shared/curves/chart/chart.module.css";
import { PngButton } from "@/shared/curves/chart/png-button";
import { metric } from "@/shared/format";
import type { Configuration } from "../trials";
import type { TrialAxis } from "./axes";
import { AxisBrush, type BrushRange } from "./axis-brush";
import {
  groupOf,
  lineAt,
  linesOf,
  type ParallelLine,
  pathOf,
  type ScaledAxis,
  scaled,
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
/** Space for the labels beside the first and the last axis. */
const SIDE = 56;
const MIN_GAP = 120;
/** Distance in pixels within which the pointer is at a line. */
const REACH = 8;
/** Groups of trials by their objective, with a colour each. */
const GROUPS = 5;
/** The best are drawn last, on top of the others. */
const BEST_FIRST = Array.from({ length: GROUPS }, (_, group) => group);

const y = (share: number) => BOTTOM - share * (BOTTOM - TOP);
const shareAt = (at: number) => Math.min(1, Math.max(0, (BOTTOM - at) / (BOTTOM - TOP)));

/** A line for each trial across an axis for each field and the objective. */
export function ParallelChart(props: Props) {
  const { axes, configurations, goal, brush, selected, hovered } = props;
  const { ref, width: given } = useElementSize();
  const width = Math.max(given, 2 * SIDE + (axes.length - 1) * MIN_GAP);
  const gap = axes.length > 1 ? (width - 2 * SIDE) / (axes.length - 1) : 0;
  const x = (axis: number) => SIDE + axis * gap;
  const onScale = useMemo(() => scaled(axes, configurations), [axes, configurations]);
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
        <Legend axis={onScale.at(-1)} goal={goal} />
        <span className={chart.commands}>
          <PngButton title="Parallel coordinates" />
        </span>
        <span className={classes.hint}>Drag along an axis to select trials</span>
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <div ref={ref} className={classes.frame} tabIndex={0} data-plot>
        <Lines {...{ goal, lines, selected, gap, width }} />
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
              end={i === axes.length - 1}
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
  gap: number;
  width: number;
}

/** The lines of all trials in a layer of its own, which a hovered line does not draw again. */
const Lines = memo(function Lines(props: LinesProps) {
  const { goal, lines, selected, gap, width } = props;
  const shown = selected ? lines.filter(({ number }) => selected.has(number)) : lines;
  const path = (among: readonly ParallelLine[]) => pathOf(among, (axis) => SIDE + axis * gap, y);
  const ofGroup = (group: number | null) =>
    path(shown.filter((line) => groupOf(line, goal, GROUPS) === group));
  return (
    <svg width={width} height={HEIGHT} className={classes.lines} aria-hidden="true">
      {selected ? (
        <path d={path(lines)} className={classes.other} opacity={Math.min(0.1, 8 / lines.length)} />
      ) : null}
      <path d={ofGroup(null)} className={classes.unrated} />
      {BEST_FIRST.toReversed().map((group) => (
        <path key={group} d={ofGroup(group)} className={classes.line} data-group={group} />
      ))}
    </svg>
  );
});

/** The colours of the lines, between the best and the worst value of the objective. */
function Legend({ axis, goal }: { axis: ScaledAxis | undefined; goal: string }) {
  if (axis === undefined) return null;
  const { low, high } = axis;
  const [best, worst] = goal === "max" ? [high, low] : [low, high];
  return (
    <span className={classes.legend}>
      {axis.axis.scale.label}: best {metric(best)}
      <span className={classes.scale} aria-hidden="true">
        {BEST_FIRST.map((group) => (
          <span key={group} className={classes.swatch} data-group={group} />
        ))}
      </span>
      {metric(worst)} worst
    </span>
  );
}
