import { useElementSize } from "@mantine/hooks";
import type { ScalingCurve, ScalingPoint } from "@/shared/api/types";
import chart from "@/shared/curves/chart/chart.module.css";
import { look } from "@/shared/curves/chart/palette";
import { PngButton } from "@/shared/curves/chart/png-button";
import { Swatch } from "@/shared/curves/chart/swatch";
import { count } from "@/shared/format";
import { three } from "../benchmark-rows";
import { curveName, doublings, KIND_LABELS, kindOf, type PointKind } from "../scaling-points";
import classes from "./speedup-chart.module.css";

interface Props {
  curves: readonly ScalingCurve[];
  /** All fields that vary. */
  fields: readonly string[];
}

type Place = (point: { workers: number; speedup: number }) => { x: number; y: number };

const HEIGHT = 260;
const LEFT = 44;
const RIGHT = 22;
const TOP = 10;
const BOTTOM = HEIGHT - 26;
/** Pixels of a label of the horizontal axis. */
const LABEL = 44;
const KINDS = Object.keys(KIND_LABELS) as PointKind[];

/** Speed-up over workers on axes that double, with the ideal line. */
export function SpeedupChart({ curves, fields }: Props) {
  const { ref, width: given } = useElementSize();
  const width = Math.max(given, 240);
  const points = curves.flatMap((curve) => curve.points);
  const workers = points.map((point) => point.workers);
  const [fewest, most] = [Math.min(...workers), Math.max(...workers)];
  const speedups = [...points.map(({ speedup }) => speedup), fewest, most];
  const [least, greatest] = [Math.min(...speedups), Math.max(...speedups)];
  const place: Place = ({ workers: n, speedup }) => ({
    x: LEFT + position(n, fewest, most) * (width - LEFT - RIGHT),
    y: BOTTOM - position(speedup, least, greatest) * (BOTTOM - TOP),
  });
  const ideal = [fewest, most].map((n) => place({ workers: n, speedup: n }));
  const kinds = KINDS.filter((kind) => points.some((point) => kindOf(point) === kind));
  return (
    <figure className={`app-card ${chart.panel}`} data-chart="speed-up over workers">
      <figcaption className={chart.caption}>
        <span className={chart.title}>Speed-up over workers</span>
        <span className={chart.commands}>
          <PngButton
            title="Speed-up over workers"
            axis="workers"
            keys={curves.map((curve, i) => ({ ...look(i), label: curveName(curve, fields) }))}
          />
        </span>
        <span className={chart.keys}>
          {curves.map((curve, i) => (
            <span key={curveName(curve, fields)} className={chart.key}>
              <Swatch look={look(i)} /> {curveName(curve, fields)}
            </span>
          ))}
        </span>
        <span className={chart.keys}>
          {kinds.map((kind) => (
            <span key={kind} className={chart.key}>
              <svg width={12} height={12} aria-hidden="true">
                <Mark kind={kind} x={6} y={6} color="currentColor" />
              </svg>
              {KIND_LABELS[kind]}
            </span>
          ))}
          <span className={chart.key}>
            <svg width={14} height={6} aria-hidden="true">
              <line x2={14} y1={3} y2={3} className={classes.ideal} />
            </svg>
            ideal
          </span>
        </span>
      </figcaption>
      <div ref={ref} data-plot>
        <svg width={width} height={HEIGHT} role="img" aria-label="Speed-up over workers">
          {doublings(least, greatest, 8).map((tick) => (
            <g key={tick}>
              <line
                x1={LEFT}
                x2={width - RIGHT}
                {...level(place({ workers: fewest, speedup: tick }).y)}
                className={classes.grid}
              />
              <text
                x={LEFT - 6}
                y={place({ workers: fewest, speedup: tick }).y + 4}
                textAnchor="end"
                className={classes.tick}
              >
                {tick < 1 ? three(tick) : count(tick)}
              </text>
            </g>
          ))}
          {doublings(fewest, most, Math.floor((width - LEFT) / LABEL)).map((tick) => (
            <text
              key={tick}
              x={place({ workers: tick, speedup: least }).x}
              y={HEIGHT - 8}
              textAnchor="middle"
              className={classes.tick}
            >
              {count(tick)}
            </text>
          ))}
          <path
            d={`M${ideal.map(({ x, y }) => `${x} ${y}`).join("L")}`}
            className={classes.ideal}
          />
          {curves.map((curve, i) => (
            <Curve
              key={curveName(curve, fields)}
              points={curve.points}
              place={place}
              color={look(i).color}
            />
          ))}
        </svg>
      </div>
    </figure>
  );
}

/** Points that are joined, dashed towards predicted ones; those with shared cores are by themselves. */
function Curve(props: { points: readonly ScalingPoint[]; place: Place; color: string }) {
  const { points, place, color } = props;
  const joined = points.filter((point) => kindOf(point) !== "shared");
  return (
    <g>
      {joined.slice(1).map((point, i) => {
        const [from, to] = [place(joined[i] ?? point), place(point)];
        return (
          <path
            key={point.workers}
            d={`M${from.x} ${from.y}L${to.x} ${to.y}`}
            stroke={color}
            strokeWidth={2}
            strokeDasharray={point.is_predicted ? "4 4" : undefined}
          />
        );
      })}
      {points.map((point) => (
        <Mark
          key={`${point.workers} ${kindOf(point)}`}
          kind={kindOf(point)}
          {...place(point)}
          color={color}
          label={`${count(point.workers)} workers: ${three(point.speedup)} ×, ${KIND_LABELS[kindOf(point)]}`}
        />
      ))}
    </g>
  );
}

interface MarkProps {
  kind: PointKind;
  x: number;
  y: number;
  color: string;
  label?: string;
}

function Mark({ kind, x, y, color, label }: MarkProps) {
  const title = label === undefined ? null : <title>{label}</title>;
  if (kind === "shared")
    return (
      <path d={`M${x - 4} ${y - 4}l8 8m-8 0l8 -8`} stroke={color} strokeWidth={2}>
        {title}
      </path>
    );
  return (
    <circle
      cx={x}
      cy={y}
      r={4}
      stroke={color}
      strokeWidth={2}
      fill={kind === "measured" ? color : "var(--app-surface)"}
    >
      {title}
    </circle>
  );
}

/** The position of a number on a logarithmic scale, from 0 to 1. */
function position(value: number, low: number, high: number): number {
  return low === high ? 0.5 : Math.log(value / low) / Math.log(high / low);
}

function level(y: number) {
  return { y1: y, y2: y };
}
