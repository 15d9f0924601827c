import { type PointerEvent, useState } from "react";
import { positionAt, type ScaledAxis, shareOf, ticksOf } from "./parallel";
import classes from "./parallel-chart.module.css";

export type BrushRange = readonly [low: number, high: number];

interface Props {
  axis: ScaledAxis;
  /** Its position in pixels. */
  x: number;
  /** Where its labels are: those of the outer axes are where no line crosses them. */
  labels: "left" | "right" | "between";
  y: (share: number) => number;
  shareAt: (y: number) => number;
  range: BrushRange | undefined;
  onRange: (range: BrushRange | null) => void;
}

const HANDLE_WIDTH = 28;
const LABEL_LENGTH = 16;
/** Minimum length of a range in pixels; less is a click, which removes the range. */
const MIN_DRAG = 4;

/** An axis with its labels, and the range that is drawn along it. */
export function AxisBrush({ axis, x, labels, y, shareAt, range, onRange }: Props) {
  const [drag, setDrag] = useState<{ from: number; to: number } | null>(null);
  const { label } = axis.axis.scale;
  const shown = drag
    ? { top: Math.min(drag.from, drag.to), bottom: Math.max(drag.from, drag.to) }
    : range
      ? { top: y(shareOf(axis, range[1])), bottom: y(shareOf(axis, range[0])) }
      : null;
  const at = ({ currentTarget, clientY }: PointerEvent<SVGElement>) => {
    const top = currentTarget.ownerSVGElement?.getBoundingClientRect().top ?? 0;
    return y(shareAt(clientY - top));
  };
  const finish = () => {
    if (drag === null) return;
    const { from, to } = drag;
    setDrag(null);
    if (Math.abs(from - to) < MIN_DRAG) onRange(null);
    else onRange(rangeBetween(axis, shareAt(Math.max(from, to)), shareAt(Math.min(from, to))));
  };
  const anchor = labels === "left" ? "end" : "start";
  const beside = x + (labels === "left" ? -7 : 7);
  return (
    <g>
      <line x1={x} x2={x} y1={y(1)} y2={y(0)} className={classes.axis} />
      <text x={x} y={14} textAnchor="middle" className={classes.label}>
        <title>{label}</title>
        {label.length > LABEL_LENGTH ? `${label.slice(0, LABEL_LENGTH - 1)}…` : label}
      </text>
      {ticksOf(axis, y(0) - y(1)).map(({ at: position, text }) => (
        <text
          key={text}
          x={beside}
          y={y(shareOf(axis, position)) + 4}
          textAnchor={anchor}
          className={classes.tick}
          data-between={labels === "between" || undefined}
        >
          {text.length > LABEL_LENGTH ? `${text.slice(0, LABEL_LENGTH - 1)}…` : text}
        </text>
      ))}
      {shown ? (
        <rect
          x={x - HANDLE_WIDTH / 4}
          width={HANDLE_WIDTH / 2}
          y={shown.top}
          height={Math.max(2, shown.bottom - shown.top)}
          className={classes.brush}
        />
      ) : null}

      <rect
        data-axis={label}
        x={x - HANDLE_WIDTH / 2}
        width={HANDLE_WIDTH}
        y={y(1) - 8}
        height={y(0) - y(1) + 16}
        className={classes.handle}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          setDrag({ from: at(event), to: at(event) });
        }}
        onPointerMove={(event) => {
          if (drag !== null) setDrag({ ...drag, to: at(event) });
        }}
        onPointerUp={finish}
        onPointerCancel={() => setDrag(null)}
      />
    </g>
  );
}

/** Rounded, since it is in the URL. */
function rangeBetween(axis: ScaledAxis, from: number, to: number): BrushRange {
  const rounded = (share: number) => Number(positionAt(axis, share).toPrecision(4));
  // The ends of the axis are exact: rounded, they could leave out its best trial.
  return [from === 0 ? axis.low : rounded(from), to === 1 ? axis.high : rounded(to)];
}
