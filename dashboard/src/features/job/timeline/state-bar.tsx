import { Text, Tooltip } from "@mantine/core";
import { count, duration, moment, plural } from "@/shared/format";
import { MOVING, TONES } from "@/shared/ui/state-badge";
import tones from "@/shared/ui/tones.module.css";
import {
  type CheckpointStatus,
  type Failure,
  type SavedCheckpoint,
  type StatePeriod,
  timeByState,
} from "./timeline";
import classes from "./timeline.module.css";

interface Mark {
  time: number;
  label: string;
  kind: "failed" | "saved" | "lost";
}

interface Props {
  periods: StatePeriod[];
  failures: Failure[];
  checkpoints: SavedCheckpoint[];
}

/** Marks of one kind that fit side by side on the bar. */
const SLOTS = 240;

/** A job's history from left to right: states as colours, failures and checkpoints as marks. */
export function StateBar({ periods, failures, checkpoints }: Props) {
  const begin = periods[0]?.begin ?? 0;
  const end = Math.max(periods.at(-1)?.end ?? 0, begin + 1);
  const share = (time: number) =>
    Math.min(100, Math.max(0, (100 * (time - begin)) / (end - begin)));
  const marks = spaced(
    [
      ...checkpoints.map(({ time, step, status }): Mark => {
        const label = `checkpoint of step ${count(step)}${status === "saved" ? "" : `, ${status}`}`;
        return { time, label, kind: status === "saved" ? "saved" : "lost" };
      }),
      ...failures.map(({ time, message }): Mark => ({ time, label: message, kind: "failed" })),
    ],
    (time) => Math.round((share(time) / 100) * SLOTS),
  );
  return (
    <figure className={`app-card ${classes.bar}`} aria-label="States over time">
      <div className={classes.track}>
        {periods.map((each) => (
          <Tooltip
            key={each.begin}
            multiline
            maw={380}
            label={
              <>
                <b>{each.state}</b> for {duration((each.end - each.begin) / 1000)}, from{" "}
                {moment(each.begin)}
                <br />
                {each.reason}
              </>
            }
          >
            <div
              className={`${tones.tone} ${classes.period}`}
              data-tone={TONES[each.state] ?? "off"}
              data-transient={isTransient(each.state)}
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
            label={`${moment(mark.time)}: ${mark.label}`}
          >
            <span
              className={classes.mark}
              data-kind={mark.kind}
              style={{ left: `${share(mark.time)}%` }}
            />
          </Tooltip>
        ))}
      </div>
      <div className={classes.ends}>
        <Text span size="xs" c="dimmed">
          {moment(begin)}
        </Text>
        <Text span size="xs" c="dimmed">
          {moment(end)}
        </Text>
      </div>
      <Legend periods={periods} failures={failures.length} checkpoints={checkpoints} />
    </figure>
  );
}

interface LegendProps {
  periods: StatePeriod[];
  failures: number;
  checkpoints: SavedCheckpoint[];
}

function Legend({ periods, failures, checkpoints }: LegendProps) {
  const number = (status: CheckpointStatus) =>
    checkpoints.filter((checkpoint) => checkpoint.status === status).length;
  const [saved, corrupt, deleted] = [number("saved"), number("corrupt"), number("deleted")];
  const marks: { kind: Mark["kind"]; number: number; label: string }[] = [
    { kind: "failed", number: failures, label: plural(failures, "failure") },
    { kind: "saved", number: saved, label: plural(saved, "checkpoint") },
    {
      kind: "lost",
      number: corrupt + deleted,
      label: [
        ...(corrupt > 0 ? [`${count(corrupt)} corrupt`] : []),
        ...(deleted > 0 ? [`${count(deleted)} deleted`] : []),
      ].join(", "),
    },
  ];
  return (
    <ul className={classes.legend} aria-label="Legend">
      {timeByState(periods).map(([state, sum]) => (
        <li key={state}>
          <span
            className={`${tones.tone} ${classes.swatch}`}
            data-tone={TONES[state]}
            data-transient={isTransient(state)}
          />
          {state} {duration(sum / 1000)}
        </li>
      ))}
      {marks.map(({ kind, number, label }) =>
        number === 0 ? null : (
          <li key={kind}>
            <span className={classes.sign} data-kind={kind} />
            {label}
          </li>
        ),
      )}
    </ul>
  );
}

/** A transient state is hatched, in the colour of the state that it leads to. */
function isTransient(state: string): true | undefined {
  return (state !== "running" && MOVING.has(state)) || undefined;
}

/** Keeps one mark of each kind per slot, so that a thousand checkpoints stay readable. */
function spaced(marks: Mark[], slot: (time: number) => number): Mark[] {
  const taken = new Map(marks.map((mark) => [`${mark.kind} ${slot(mark.time)}`, mark]));
  return [...taken.values()];
}
