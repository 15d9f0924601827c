import { Text, Tooltip } from "@mantine/core";
import { count, duration, plural } from "@/shared/format";
import { MOVING, TONES } from "@/shared/ui/state-badge";
import tones from "@/shared/ui/tones.module.css";
import { type Failed, type Fate, type Save, type Stretch, timeByState } from "./timeline";
import classes from "./timeline.module.css";

interface Mark {
  time: number;
  label: string;
  kind: "failed" | "kept" | "given-up";
}

interface Props {
  stretches: Stretch[];
  failures: Failed[];
  saves: Save[];
}

/** Marks of one kind that can be told from each other along the bar. */
const SLOTS = 240;

/** A job's life from left to right: its states as colours, failures and checkpoints as marks. */
export function StateBar({ stretches, failures, saves }: Props) {
  const begin = stretches[0]?.begin ?? 0;
  const end = Math.max(stretches.at(-1)?.end ?? 0, begin + 1);
  const share = (time: number) =>
    Math.min(100, Math.max(0, (100 * (time - begin)) / (end - begin)));
  const marks = apart(
    [
      ...saves.map((save): Mark => {
        const { time, step, fate } = save;
        const told = { kept: "", corrupt: ", corrupt", "given up": ", given up since" }[fate];
        const label = `checkpoint of step ${count(step)}${told}`;
        return { time, label, kind: fate === "kept" ? "kept" : "given-up" };
      }),
      ...failures.map(({ time, message }): Mark => ({ time, label: message, kind: "failed" })),
    ],
    (time) => Math.round((share(time) / 100) * SLOTS),
  );
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
              data-passing={isPassing(each.state)}
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
              style={{ left: `${share(mark.time)}%` }}
            />
          </Tooltip>
        ))}
      </div>
      <div className={classes.ends}>
        <Text span size="xs" c="dimmed">
          {new Date(begin).toLocaleString()}
        </Text>
        <Text span size="xs" c="dimmed">
          {new Date(end).toLocaleString()}
        </Text>
      </div>
      <Legend stretches={stretches} failures={failures.length} saves={saves} />
    </figure>
  );
}

interface LegendProps {
  stretches: Stretch[];
  failures: number;
  saves: Save[];
}

function Legend({ stretches, failures, saves }: LegendProps) {
  const number = (fate: Fate) => saves.filter((save) => save.fate === fate).length;
  const [kept, corrupt, gone] = [number("kept"), number("corrupt"), number("given up")];
  const marks: { kind: Mark["kind"]; number: number; told: string }[] = [
    { kind: "failed", number: failures, told: plural(failures, "failure") },
    { kind: "kept", number: kept, told: `${plural(kept, "checkpoint")} kept` },
    {
      kind: "given-up",
      number: corrupt + gone,
      told: [
        ...(corrupt > 0 ? [`${count(corrupt)} corrupt`] : []),
        ...(gone > 0 ? [`${count(gone)} given up since`] : []),
      ].join(", "),
    },
  ];
  return (
    <ul className={classes.legend} aria-label="What the colours and marks are">
      {timeByState(stretches).map(([state, sum]) => (
        <li key={state}>
          <span
            className={`${tones.tone} ${classes.swatch}`}
            data-tone={TONES[state]}
            data-passing={isPassing(state)}
          />
          {state} {duration(sum / 1000)}
        </li>
      ))}
      {marks.map(({ kind, number, told }) =>
        number === 0 ? null : (
          <li key={kind}>
            <span className={classes.sign} data-kind={kind} />
            {told}
          </li>
        ),
      )}
    </ul>
  );
}

/** A state on the way to another is hatched: its colour is that of the one it leads to. */
function isPassing(state: string): true | undefined {
  return (state !== "running" && MOVING.has(state)) || undefined;
}

/** One mark of a kind in a place; of a job that saved a thousand times, those that can be seen. */
function apart(marks: Mark[], slot: (time: number) => number): Mark[] {
  const taken = new Map(marks.map((mark) => [`${mark.kind} ${slot(mark.time)}`, mark]));
  return [...taken.values()];
}
