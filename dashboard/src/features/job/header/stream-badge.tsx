import { Button, Tooltip } from "@mantine/core";
import { age } from "@/shared/format";
import type { StreamStatus } from "@/shared/live/job-stream";
import { useDerivedNow } from "@/shared/now";
import classes from "./stream-badge.module.css";

const MEANING: Record<StreamStatus["phase"], string> = {
  connecting: "Loading the job's history.",
  live: "Live, up to date.",
  reconnecting: "The connection was lost a moment ago. No data is lost.",
  stale: "The coordinator does not respond. The job keeps running, and no data is lost.",
  gone: "Job not found.",
};

interface Props {
  status: StreamStatus;
  onRetry: () => void;
}

/** Whether the page is live, and otherwise the age of its data. */
export function StreamBadge({ status, onRetry }: Props) {
  const { phase, lastResponseAt } = status;
  const dataAge = useDerivedNow((now) =>
    phase === "stale" && lastResponseAt !== null
      ? ` · ${age((now - lastResponseAt) / 1000)} old`
      : "",
  );
  return (
    <span className={classes.group}>
      <Tooltip label={MEANING[phase]} multiline maw={320}>
        <span className={classes.badge} data-phase={phase} role="status" aria-live="polite">
          <span className={classes.dot} aria-hidden="true" />
          {phase}
          {phase === "stale" ? <span aria-live="off">{dataAge}</span> : null}
        </span>
      </Tooltip>
      {phase === "stale" ? (
        <Button size="compact-xs" variant="subtle" onClick={onRetry}>
          Retry now
        </Button>
      ) : null}
    </span>
  );
}
