import { type Look, look } from "@/shared/curves/chart/palette";
import type { Shape } from "@/shared/curves/chart/shapes";

/** What became of a trial, or of one at a rung of early stopping. */
export type Fate = "completed" | "promoted" | "running" | "paused" | "stopped" | "failed";

/** The order in which they are listed. */
export const FATES: readonly Fate[] = [
  "completed",
  "promoted",
  "running",
  "paused",
  "stopped",
  "failed",
];

/** Colours and shapes: the one is enough to tell them apart. */
const LOOKS: Record<Fate, { color: number; shape: Shape }> = {
  completed: { color: 0, shape: "dot" },
  promoted: { color: 2, shape: "triangle" },
  running: { color: 2, shape: "triangle" },
  paused: { color: 5, shape: "ring" },
  stopped: { color: 7, shape: "cross" },
  failed: { color: 1, shape: "square" },
};

/** What has become of a trial by its state. */
export function fateOf(state: string): Fate {
  if (state === "paused" || state === "pausing") return "paused";
  if (state === "completed" || state === "failed") return state;
  if (state === "stopped" || state === "cancelled" || state === "cancelling") return "stopped";
  return "running";
}

/** The fates that occur, as groups of points. */
export function groupsOf(fates: readonly Fate[]): { fate: Fate; label: string; look: Look }[] {
  return FATES.filter((fate) => fates.includes(fate)).map((fate) => {
    const { color, shape } = LOOKS[fate];
    return { fate, label: fate, look: { ...look(color), shape } };
  });
}
