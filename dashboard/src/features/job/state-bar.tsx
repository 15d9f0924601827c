import { Text, Tooltip } from "@mantine/core";
import type { Checkpoint } from "@/shared/api/types";
import { count, duration } from "@/shared/format";
import { TONES } from "@/shared/ui/state-badge";
import tones from "@/shared/ui/tones.module.css";
import { type Stretch, timeByState } from "./timeline";
import classes from "./timeline.module.css";

interface Mark {
  time: number;
  label: string;
  kind: "failed" | "saved";
}

interface Props {
  stretches: Stretch[];
  /** Failures, with their messages; times in milliseconds. */
  failures: { time: number; message: string }[];
  checkpoints: Checkpoint[];
}

/** A job's life from left to right: its states as colours, failures and checkpoints as marks. */
export function StateBar({ stretches, failures, checkpoints }: Props) {
  const begin = stretches[0]?.begin ?? 0;
  const end = Math.max(stretches.at(-1)?.end ?? 0, begin + 1);
  const share = (time: number) => (100 * (time - begin)) / (end - begin);
  const marks: Mark[] = [
    ...failures.map(({ time, message }) => ({ time, label: message, kind: "failed" as const })),
    ...checkpoints.map((saved) => ({
      time: Date.parse(saved.created_at),
      label: `checkpoint of step ${count(saved.step)}`,
      kind: "saved" as const,
    })),
  ];
  return (
    <figure className={classes.bar} aria-label="States over time">
      <div className={classes.track}>
        {stretches.map((each) => (
          <Tooltip
            key={each.begin}
            multiline
            maw={380}
            label={
              <>
                <b>{each.state}</b> for {duration((each.end - each.begin) / 1000)}, from{" "}
                {new Date(each.begin).toLocaleString()}
                <br />
                {each.reason}
              </>
            }
          >
            <div
              className={`${tones.tone} ${classes.stretch}`}
              data-tone={TONES[each.state] ?? "off"}
              style={{
                left: `${share(each.begin)}%`,
                width: `${share(each.end) - share(each.begin)}%`,
              }}
            />
          </Tooltip>
        ))}
      </div>
      <div className={classes.marks}>
        {marks.map((mark) => (
          <Tooltip
            key={`${mark.kind} ${mark.time} ${mark.label}`}
            label={`${new Date(mark.time).toLocaleTimeString()}: ${mark.label}`}
          >
            <span
              className={classes.mark}
              data-kind={mark.kind}
              style={{ left: `${Math.min(100, Math.max(0, share(mark.time)))}%` }}
            />
          </Tooltip>
        ))}
      </div>
      <div className={classes.ends}>
        <Text span size="xs" c="dimmed">
          {new Date(begin).toLocaleString()}
        </Text>
        <span className={classes.sums}>
          {timeByState(stretches).map(([state, sum]) => (
            <span key={state} className={`${tones.tone} ${classes.sum}`} data-tone={TONES[state]}>
              {state} {duration(sum / 1000)}
            </span>
          ))}
          {checkpoints.length > 0 ? (
            <span className={classes.sum} data-kind="saved">
              {count(checkpoints.length)} saved
            </span>
          ) : null}
        </span>
        <Text span size="xs" c="dimmed">
          {new Date(end).toLocaleString()}
        </Text>
      </div>
    </figure>
  );
}
