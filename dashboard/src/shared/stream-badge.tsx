import { Button, Tooltip } from "@mantine/core";
import { age } from "./format";
import { useToldNow } from "./now";
import type { StreamStatus } from "./stream";
import classes from "./stream-badge.module.css";

const MEANING: Record<StreamStatus["phase"], string> = {
  connecting: "Loading what has happened so far.",
  live: "What you see is what is.",
  reconnecting: "The connection broke a moment ago. Nothing will be missing.",
  stale:
    "The coordinator does not answer. The job goes on without it, and nothing will be missing.",
  gone: "There is no such job.",
};

interface Props {
  status: StreamStatus;
  onRetry: () => void;
}

/** Whether the page is live, and if it is not, how old what it shows is. */
export function StreamBadge({ status, onRetry }: Props) {
  const { phase, heardAt } = status;
  const old = useToldNow((now) =>
    phase === "stale" && heardAt !== null ? ` · ${age((now - heardAt) / 1000)} old` : "",
  );
  return (
    <span className={classes.group}>
      <Tooltip label={MEANING[phase]} multiline maw={320}>
        <span className={classes.badge} data-phase={phase} role="status" aria-live="polite">
          <span className={classes.dot} aria-hidden="true" />
          {phase}
          {phase === "stale" ? <span aria-live="off">{old}</span> : null}
        </span>
      </Tooltip>
      {phase === "stale" ? (
        <Button size="compact-xs" variant="subtle" onClick={onRetry}>
          Try now
        </Button>
      ) : null}
    </span>
  );
}
