import uPlot from "uplot";
import { type Axis, BYTE_TICKS, metricOf } from "@/shared/curves/data/axis";
import { byteTicks, dateAndTime } from "@/shared/format";
import { formatOf } from "@/shared/live/metric-names";
import { positionText } from "./legend";
import { SECOND_TICKS, STEP_TICKS } from "./ticks";

/** The look of an axis. */
export function axisLook(dark: boolean): uPlot.Axis {
  const stroke = dark ? "#9aa3ad" : "#6b7480";
  const grid = { stroke: dark ? "rgba(255,255,255,0.06)" : "rgba(20,30,50,0.07)", width: 1 };
  return { stroke, grid, ticks: { ...grid, size: 4 }, font: "11px system-ui, sans-serif" };
}

export function horizontal(dark: boolean, axis: Axis): uPlot.Axis {
  // Over wall time the date is shown below the time.
  const x: uPlot.Axis = { ...axisLook(dark), size: axis === "time" ? 40 : 28 };
  if (axis === "step") {
    x.values = (_, ticks) => ticks.map((tick) => tick.toLocaleString("en-US"));
    x.incrs = STEP_TICKS;
    x.space = 64;
  } else if (axis === "elapsed") {
    x.values = (_, ticks) => ticks.map((tick) => positionText(tick, axis));
    x.incrs = SECOND_TICKS;
    x.space = 64;
  } else if (axis === "time") {
    x.values = (_, ticks, __, ___, distance) => timesOfDay(ticks, distance);
  } else {
    const name = metricOf(axis) ?? "";
    const labels = name.endsWith("_bytes") ? byteTicks : each(formatOf(name));
    x.values = (_, ticks) => labels(ticks);
    x.space = 72;
  }
  return x;
}

/** Labels of wall time: the time of day, with the date below where it is another one. */
function timesOfDay(ticks: readonly number[], distance: number): string[] {
  let before = "";
  return ticks.map((tick) => {
    const [date = "", time = ""] = dateAndTime(tick * 1000).split(" ");
    const label = distance < 60 ? time : time.slice(0, 5);
    const isOther = date !== before;
    before = date;
    return distance >= 86_400 ? date : isOther ? `${label}\n${date}` : label;
  });
}

type Labels = (ticks: readonly number[]) => string[];

/** On a logarithmic axis some ticks have no label: they are null. */
export function vertical(dark: boolean, labels: Labels): uPlot.Axis {
  return {
    ...axisLook(dark),
    size: 62,
    values: (_, ticks: (number | null)[]) => {
      const texts = labels(ticks.filter((tick) => tick !== null));
      return ticks.map((tick) => (tick === null ? "" : (texts.shift() ?? "")));
    },
    ...(labels === byteTicks ? { incrs: BYTE_TICKS } : {}),
  };
}

export function each(format: (value: number) => string): Labels {
  return (ticks) => ticks.map(format);
}

export function linearRange(
  least: number | null,
  most: number | null,
  limits: readonly number[],
): uPlot.Range.MinMax {
  if (least === null || most === null) return [0, 1];
  const low = Math.min(least, ...limits);
  const high = Math.max(most, ...limits);
  if (low === high) {
    const padding = Math.abs(low) * 0.1;
    return low === 0 ? [0, 1] : [low - padding, high + padding];
  }
  const padding = (high - low) * 0.06;
  const bottom = low >= 0 && low - padding < 0 ? 0 : low - padding;
  return [bottom, limits.includes(high) ? high : high + padding];
}

export function stackRange(_: uPlot, __: number | null, high: number | null): uPlot.Range.MinMax {
  return [0, high === null || high <= 0 ? 1 : high * 1.05];
}

export function logRange(_: uPlot, low: number | null, high: number | null): uPlot.Range.MinMax {
  if (low === null || high === null || !(high > 0)) return [0.1, 1];
  return uPlot.rangeLog(low > 0 ? low : high / 1e6, high, 10, false);
}
