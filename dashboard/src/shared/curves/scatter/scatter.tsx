import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import classes from "@/shared/curves/chart/chart.module.css";
import { useOnScreen } from "@/shared/curves/chart/on-screen";
import { PngButton } from "@/shared/curves/chart/png-button";
import { Swatch } from "@/shared/curves/chart/swatch";
import type { Range } from "@/shared/curves/data/axis";
import { Mark } from "./mark";
import { dataOf, LINE, nearest, optionsOf, SCATTER_HEIGHT, type ScatterData } from "./options";

interface Props extends ScatterData {
  title: string;
  /** Shown while there are no points: "no values yet". */
  empty: string;
  /** The id that is marked, here or elsewhere. */
  hovered: number | null;
  onHover: (id: number | null) => void;
  /** A point was clicked. */
  onPick: (id: number) => void;
  /** A rectangle was drawn. */
  onBrush?: (x: Range, y: Range) => void;
}

/** Minimum size of a rectangle in pixels; less is a click. */
const MIN_DRAG = 6;

/** A chart of single points, in the look of the charts of curves. */
export function Scatter(props: Props) {
  const { title, axis, empty, points, groups, line, selected, hovered } = props;
  const [frame, onScreen] = useOnScreen<HTMLElement>();
  const host = useRef<HTMLDivElement>(null);
  const scheme = useComputedColorScheme("light");
  const [plot, setPlot] = useState<uPlot | null>(null);
  const [pointed, setPointed] = useState<number | null>(null);
  const latest = useRef(props);
  latest.current = props;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the others are read through the ref
  useEffect(() => {
    const element = host.current;
    if (!onScreen || element === null || points.length === 0) return;
    const made = new uPlot(
      {
        ...optionsOf(props, scheme === "dark", width(element)),
        hooks: {
          setCursor: [
            (self) => {
              const at = nearest(self, latest.current.points);
              setPointed(at);
              latest.current.onHover(at === null ? null : (points[at]?.id ?? null));
            },
          ],
          setSelect: [(self) => brush(self, latest.current)],
        },
      },
      dataOf(props),
      element,
    );
    made.over.addEventListener("click", () => {
      const at = nearest(made, latest.current.points);
      const id = at === null ? undefined : latest.current.points[at]?.id;
      if (id !== undefined) latest.current.onPick(id);
    });
    setPlot(made);
    const resizes = new ResizeObserver(() =>
      made.setSize({ width: width(element), height: SCATTER_HEIGHT }),
    );
    resizes.observe(element);
    return () => {
      resizes.disconnect();
      made.destroy();
      setPlot(null);
      setPointed(null);
    };
  }, [onScreen, axis, points, groups, line, selected, props.logarithmic, scheme]);

  useEffect(() => {
    if (plot === null || hovered === null) return;
    const marks = points
      .filter(({ id }) => id === hovered)
      .map(({ x, y }) => markAt(plot.valToPos(x, "x"), plot.valToPos(y, "y")));
    plot.over.append(...marks);
    return () => {
      for (const mark of marks) mark.remove();
    };
  }, [plot, hovered, points]);

  return (
    <figure className={`app-card ${classes.panel}`} ref={frame} data-chart={title}>
      <figcaption className={classes.caption}>
        <span className={classes.title}>{title}</span>
        <span className={classes.cursor}>
          {pointed !== null ? (
            points[pointed]?.label
          ) : line && points.length > 0 ? (
            <span className={classes.key}>
              <Swatch look={LINE} strokeWidth={3} /> {line.label}
            </span>
          ) : null}
        </span>
        <span className={classes.commands}>
          <PngButton
            title={title}
            axis={axis.label}
            keys={groups?.map(({ label, look }) => ({ ...look, label })) ?? []}
          />
        </span>
        {groups ? (
          <span className={classes.keys}>
            {groups.map((group) => (
              <span key={group.label} className={classes.key}>
                <Mark shape={group.look.shape ?? "dot"} color={group.look.color} /> {group.label}
              </span>
            ))}
          </span>
        ) : null}
      </figcaption>
      <div
        className={classes.plot}
        style={{ height: SCATTER_HEIGHT, cursor: pointed === null ? undefined : "pointer" }}
      >
        <div ref={host} role="img" aria-label={title} />
        <div className={classes.empty} hidden={points.length > 0}>
          {empty}
        </div>
      </div>
    </figure>
  );
}

/** Reports the rectangle that was drawn, and takes it off the plot. */
function brush(plot: uPlot, { onBrush }: Props): void {
  const { left, top, width, height } = plot.select;
  if (width === 0 && height === 0) return;
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  if (width < MIN_DRAG || height < MIN_DRAG) return;
  const ends = (scale: "x" | "y", begin: number, length: number): Range => {
    const [a, b] = [plot.posToVal(begin, scale), plot.posToVal(begin + length, scale)];
    return { from: Math.min(a, b), to: Math.max(a, b) };
  };
  onBrush?.(ends("x", left, width), ends("y", top, height));
}

/** A ring around a point. */
function markAt(left: number, top: number): HTMLElement {
  const mark = document.createElement("div");
  mark.className = classes.mark ?? "";
  mark.style.translate = `${left}px ${top}px`;
  return mark;
}

function width(element: HTMLElement): number {
  return Math.max(120, element.clientWidth);
}
