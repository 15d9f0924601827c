import type { QueuePosition } from "@/client";
import { age, count } from "./format";

const HOUR_MS = 3_600_000;
/** A place that a job has for less time is no news. */
const MINUTE_MS = 60_000;

/**
 * "an hour ago: 7", or when it was queued if that is later; empty within the first minute, and if
 * it is the present position.
 */
export function earlierPosition(
  history: readonly QueuePosition[],
  now: number,
  position: number,
): string {
  const hourAgo = now - HOUR_MS;
  const was = history.find(({ until }) => until === null || Date.parse(until) > hourAgo);
  if (was === undefined || was.position === position) return "";
  const ago = now - Math.max(hourAgo, Date.parse(was.since));
  if (ago < MINUTE_MS) return "";
  return `${ago < HOUR_MS ? age(ago / 1000) : "an hour"} ago: ${count(was.position)}`;
}

interface Props {
  history: readonly QueuePosition[];
  now: number;
  width?: number;
  height?: number;
}

/** Positions over time as steps, the first place on top. Text beside it says the same. */
export function PositionSteps({ history, now, width = 84, height = 22 }: Props) {
  const [first] = history;
  if (first === undefined) return null;
  const begin = Date.parse(first.since);
  const positions = history.map(({ position }) => position);
  const [low, high] = [Math.min(...positions), Math.max(...positions)];
  // `now` may be a little older than what was sampled last.
  const end = Math.max(now, begin + 1);
  const x = (time: number) => 1 + Math.min(1, (time - begin) / (end - begin)) * (width - 2);
  const y = (place: number) => 2 + ((place - low) / Math.max(1, high - low)) * (height - 4);
  const path = history.map(({ since, until, position }, i) => {
    const isGap = i === 0 || history[i - 1]?.until !== since;
    const [from, to] = [x(Date.parse(since)), x(until === null ? end : Date.parse(until))];
    const move = isGap ? `M${from.toFixed(1)} ${y(position).toFixed(1)}` : "";
    return `${move}V${y(position).toFixed(1)}H${to.toFixed(1)}`;
  });
  return (
    <svg width={width} height={height} aria-hidden style={{ display: "block", maxWidth: "100%" }}>
      <path
        d={path.join("")}
        fill="none"
        stroke="var(--mantine-primary-color-filled)"
        strokeWidth={1.4}
      />
    </svg>
  );
}
