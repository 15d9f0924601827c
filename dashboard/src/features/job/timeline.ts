import type { Attempt, JobEvent } from "@/shared/api/types";
import { count, plural } from "@/shared/format";

/** A stretch of time that a job spent in one state; times in milliseconds since the epoch. */
export interface Stretch {
  state: string;
  reason: string;
  begin: number;
  end: number;
}

/** The states of a job one after the other, until it ended or until now. */
export function stretches(events: readonly JobEvent[], end: number): Stretch[] {
  const changes = events.flatMap((event) =>
    event.kind === "state" && typeof event.data.state === "string"
      ? [{ state: event.data.state, reason: event.reason, begin: Date.parse(event.time) }]
      : [],
  );
  return changes.map((change, i) => ({
    ...change,
    end: Math.max(change.begin, changes[i + 1]?.begin ?? end),
  }));
}

/** How long a job was in each state altogether, in milliseconds, the longest first. */
export function timeByState(all: readonly Stretch[]): [state: string, milliseconds: number][] {
  const sums = new Map<string, number>();
  for (const { state, begin, end } of all) sums.set(state, (sums.get(state) ?? 0) + end - begin);
  return [...sums].filter(([, sum]) => sum > 0).sort(([, a], [, b]) => b - a);
}

/** A checkpoint as the events tell it; `time` is when it was saved, in milliseconds. */
export interface Save {
  id: string;
  time: number;
  step: number;
  fate: Fate;
}

/** What became of a checkpoint. */
export type Fate = "kept" | "corrupt" | "given up";

function fateOf(state: unknown): Fate {
  if (state === "committed") return "kept";
  return state === "corrupt" ? "corrupt" : "given up";
}

/** Every checkpoint that was saved, and whether it is still there, in the order of their saving. */
export function savesOf(events: readonly JobEvent[]): Save[] {
  const saves = new Map<string, Save>();
  for (const { kind, time, data } of events) {
    const { id, step, state } = data;
    if (kind !== "checkpoint" || typeof id !== "string" || typeof step !== "number") continue;
    const before = saves.get(id);
    const fate = fateOf(state);
    saves.set(id, before ? { ...before, fate } : { id, time: Date.parse(time), step, fate });
  }
  return [...saves.values()];
}

/** A failure as the attempts tell it; times in milliseconds. */
export interface Failed {
  time: number;
  message: string;
}

/** What failed, whether ranks that were left regrouped in place or the attempt ended. */
export function failuresOf(attempts: readonly Pick<Attempt, "timeline">[]): Failed[] {
  return attempts
    .flatMap(({ timeline }) => timeline)
    .flatMap(({ failure, detected_at }) =>
      detected_at !== null && failure.cause !== "preempted"
        ? [{ time: Date.parse(detected_at), message: failure.message }]
        : [],
    );
}

/** Many events about checkpoints in a few words: "6 saved, 3 given up". */
export function checkpointsTold(entry: Entry): string {
  const words: Record<Fate, string> = { kept: "saved", corrupt: "corrupt", "given up": "given up" };
  const numbers = new Map<Fate, number>();
  for (const { data } of entry) {
    const fate = fateOf(data.state);
    numbers.set(fate, (numbers.get(fate) ?? 0) + 1);
  }
  return (["kept", "corrupt", "given up"] as const)
    .filter((fate) => numbers.has(fate))
    .map((fate) => `${count(numbers.get(fate))} ${words[fate]}`)
    .join(", ");
}

/** One attempt with what happened in it; without one, what was before the first. */
export interface Chapter {
  number: number;
  attempt: Attempt | null;
  entries: Entry[];
}

/** One event, or many checkpoints in a row, which are told as one. Newest first. */
export type Entry = JobEvent[];

const FEW = 3;

/** What happened, the newest first. What names no attempt belongs to the one that was then. */
export function chaptersOf(events: readonly JobEvent[], attempts: readonly Attempt[]): Chapter[] {
  const byNumber = new Map(attempts.map((attempt) => [attempt.attempt, attempt]));
  const told = new Map<number, JobEvent[]>(attempts.map((attempt) => [attempt.attempt, []]));
  let number = 0;
  for (const event of events) {
    number = event.attempt ?? number;
    told.set(number, [...(told.get(number) ?? []), event]);
  }
  return [...told]
    .sort(([a], [b]) => b - a)
    .map(([each, own]) => ({
      number: each,
      attempt: byNumber.get(each) ?? null,
      // Hosts tell what happened there a little later, with its own time.
      entries: gathered(
        own.toSorted((a, b) => Date.parse(a.time) - Date.parse(b.time)),
      ).toReversed(),
    }));
}

function gathered(events: readonly JobEvent[]): Entry[] {
  const runs: JobEvent[][] = [];
  for (const event of events) {
    const last = runs.at(-1);
    if (last?.[0]?.kind === "checkpoint" && event.kind === "checkpoint") last.push(event);
    else runs.push([event]);
  }
  return runs.flatMap((run) =>
    run.length > FEW ? [run.toReversed()] : run.map((event) => [event]),
  );
}

const SHOWN_SIZES = 6;

/** How many workers an attempt had, one regrouping after the other: "4 → 3 → 4 workers". */
export function workersOf({
  generations,
  world_size,
}: Pick<Attempt, "generations" | "world_size">) {
  const sizes = generations
    .map((generation) => generation.world_size)
    .filter((size, i, all) => size !== all[i - 1]);
  if (sizes.length < 2) return plural(world_size, "worker");
  const left = sizes.length > SHOWN_SIZES ? "… → " : "";
  return `${left}${sizes.slice(-SHOWN_SIZES).join(" → ")} workers`;
}

const SIGNALS: Record<number, string> = {
  1: "SIGHUP",
  2: "SIGINT",
  3: "SIGQUIT",
  4: "SIGILL",
  6: "SIGABRT",
  7: "SIGBUS",
  8: "SIGFPE",
  9: "SIGKILL",
  11: "SIGSEGV",
  13: "SIGPIPE",
  15: "SIGTERM",
};

/** How a rank ended: "rank 1 · SIGKILL (9)", "rank 0 · exit code 3". */
export function endOf(failure: NonNullable<Attempt["failure"]>): string {
  const { rank, signal, exit_code } = failure;
  return [
    ...(rank === null || rank === undefined ? [] : [`rank ${rank}`]),
    ...(signal ? [SIGNALS[signal] ? `${SIGNALS[signal]} (${signal})` : `signal ${signal}`] : []),
    ...(typeof exit_code === "number" ? [`exit code ${exit_code}`] : []),
  ].join(" · ");
}
