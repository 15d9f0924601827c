import { Tooltip } from "@mantine/core";
import classes from "./state-badge.module.css";
import tones from "./tones.module.css";

// The word always says the state; the colour only helps the eye.
export const TONES: Record<string, string> = {
  queued: "wait",
  starting: "begin",
  running: "run",
  pausing: "hold",
  paused: "hold",
  stopping: "warn",
  recovering: "warn",
  cancelling: "off",
  completed: "good",
  failed: "bad",
  cancelled: "off",
  stopped: "off",
  ready: "good",
  pending: "wait",
  suspect: "warn",
  lost: "bad",
  draining: "hold",
  drained: "off",
  committed: "good",
  corrupt: "bad",
  deleting: "off",
  deleted: "off",
  enabled: "good",
  disabled: "off",
  failing: "warn",
  delivered: "good",
  simulated: "off",
};

/** Words for states whose name is not the field's. */
const LABELS: Record<string, string> = { committed: "saved" };

/** States that pass by themselves. */
export const MOVING = new Set(["starting", "running", "pausing", "recovering", "cancelling"]);

interface Props {
  state: string;
  reason?: string;
  size?: "sm" | "md";
}

export function StateBadge({ state, reason, size = "sm" }: Props) {
  const badge = (
    <span
      className={`${tones.tone} ${classes.badge}`}
      data-tone={TONES[state] ?? "off"}
      data-moving={MOVING.has(state) || undefined}
      data-size={size}
      data-state={state}
    >
      <span className={classes.dot} aria-hidden="true" />
      {LABELS[state] ?? state}
    </span>
  );
  if (!reason) return badge;
  return (
    <Tooltip label={reason} multiline maw={420} openDelay={300}>
      {badge}
    </Tooltip>
  );
}
