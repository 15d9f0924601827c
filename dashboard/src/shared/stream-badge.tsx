import { Button, Tooltip } from "@mantine/core";
import { age } from "./format";
import { useNow } from "./now";
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
  const now = useNow();
  const old = status.heardAt === null ? "" : ` · ${age((now - status.heardAt) / 1000)} old`;
  return (
    <span className={classes.group}>
      <Tooltip label={MEANING[status.phase]} multiline maw={320}>
        <span className={classes.badge} data-phase={status.phase} role="status" aria-live="polite">
          <span className={classes.dot} aria-hidden="true" />
          {status.phase}
          {status.phase === "stale" ? <span aria-live="off">{old}</span> : null}
        </span>
      </Tooltip>
      {status.phase === "stale" ? (
        <Button size="compact-xs" variant="subtle" onClick={onRetry}>
          Try now
        </Button>
      ) : null}
    </span>
  );
}
