import { useElementSize } from "@mantine/hooks";
import { type MouseEvent, memo, useMemo } from "react";
import chart from "@/shared/curves/chart/chart.module.css";
import type { Configuration } from "../trials";
import type { TrialAxis } from "./axes";
import { AxisBrush, type BrushRange } from "./axis-brush";
import { lineAt, linesOf, type ParallelLine, pathOf, ranked, scaled } from "./parallel";
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
/** Groups of trials by their rank, with a colour each. */
const RANKS = 5;

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
        <span className={chart.title}>Parallel coordinates</span>
        <span className={classes.legend}>
          best <span className={classes.ranks} /> worst
        </span>
        <span className={classes.hint}>Drag along an axis to select trials</span>
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <div ref={ref} className={classes.frame} tabIndex={0}>
        <Lines {...{ configurations, goal, lines, selected, gap, width }} />
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

interface LinesProps extends Pick<Props, "configurations" | "goal" | "selected"> {
  lines: readonly ParallelLine[];
  gap: number;
  width: number;
}

/** The lines of all trials in a layer of its own, which a hovered line does not draw again. */
const Lines = memo(function Lines(props: LinesProps) {
  const { configurations, goal, lines, selected, gap, width } = props;
  const ranks = ranked(configurations, goal, RANKS);
  const shown = selected ? lines.filter(({ number }) => selected.has(number)) : lines;
  const path = (among: readonly ParallelLine[]) => pathOf(among, (axis) => SIDE + axis * gap, y);
  const ofRank = (rank?: number) => path(shown.filter(({ number }) => ranks.get(number) === rank));
  // The best are drawn last, on top of the others.
  const worstFirst = Array.from({ length: RANKS }, (_, i) => RANKS - 1 - i);
  return (
    <svg width={width} height={HEIGHT} className={classes.lines} aria-hidden="true">
      {selected ? (
        <path d={path(lines)} className={classes.other} opacity={Math.min(0.1, 8 / lines.length)} />
      ) : null}
      <path d={ofRank()} className={classes.unrated} />
      {worstFirst.map((rank) => (
        <path key={rank} d={ofRank(rank)} className={classes.line} data-rank={rank} />
      ))}
    </svg>
  );
});
