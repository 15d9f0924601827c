import type { Attempt, JobEvent } from "@/shared/api/types";
import { count, plural } from "@/shared/format";

/** A period that a job spent in one state; times in milliseconds since the epoch. */
export interface StatePeriod {
  state: string;
  reason: string;
  begin: number;
  end: number;
}

/** The states of a job in order, the last one until `end`. */
export function statePeriods(events: readonly JobEvent[], end: number): StatePeriod[] {
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

/** The total time of each state in milliseconds, the longest first. */
export function timeByState(
  periods: readonly StatePeriod[],
): [state: string, milliseconds: number][] {
  const sums = new Map<string, number>();
  for (const { state, begin, end } of periods)
    sums.set(state, (sums.get(state) ?? 0) + end - begin);
  return [...sums].filter(([, sum]) => sum > 0).sort(([, a], [, b]) => b - a);
}

/** A checkpoint, from the events; `time` is when it was saved, in milliseconds. */
export interface SavedCheckpoint {
  id: string;
  time: number;
  step: number;
  status: CheckpointStatus;
}

const STATUSES = ["saved", "corrupt", "deleted"] as const;
export type CheckpointStatus = (typeof STATUSES)[number];

function statusOf(state: unknown): CheckpointStatus {
  if (state === "committed") return "saved";
  return state === "corrupt" ? "corrupt" : "deleted";
}

/** Every checkpoint with its newest status, in the order in which they were saved. */
export function savedCheckpoints(events: readonly JobEvent[]): SavedCheckpoint[] {
  const saved = new Map<string, SavedCheckpoint>();
  for (const { kind, time, data } of events) {
    const { id, step, state } = data;
    if (kind !== "checkpoint" || typeof id !== "string" || typeof step !== "number") continue;
    const before = saved.get(id);
    const status = statusOf(state);
    saved.set(id, before ? { ...before, status } : { id, time: Date.parse(time), step, status });
  }
  return [...saved.values()];
}

/** A failure, from the attempts; `time` in milliseconds. */
export interface Failure {
  time: number;
  message: string;
}

/** All failures, whether the other ranks regrouped in place or the attempt ended. */
export function failuresOf(attempts: readonly Pick<Attempt, "timeline">[]): Failure[] {
  return attempts
    .flatMap(({ timeline }) => timeline)
    .flatMap(({ failure, detected_at, is_move }) =>
      detected_at !== null && !is_move
        ? [{ time: Date.parse(detected_at), message: failure.message }]
        : [],
    );
}

/** A summary of checkpoint events: "6 saved, 3 deleted". */
export function checkpointSummary(group: EventGroup): string {
  const numbers = new Map<CheckpointStatus, number>();
  for (const { data } of group) {
    const status = statusOf(data.state);
    numbers.set(status, (numbers.get(status) ?? 0) + 1);
  }
  return STATUSES.filter((status) => numbers.has(status))
    .map((status) => `${count(numbers.get(status))} ${status}`)
    .join(", ");
}

/** The events of one attempt; `attempt` is null for those before the first. */
export interface AttemptSection {
  number: number;
  attempt: Attempt | null;
  groups: EventGroup[];
}

/** One event, or a run of checkpoint events that is shown as one line. The newest first. */
export type EventGroup = JobEvent[];

/** Checkpoint events in a row that are still shown one by one. */
const MAX_UNGROUPED = 3;

/** Events by attempt, the newest first. An event without an attempt belongs to the one of its time. */
export function attemptSections(
  events: readonly JobEvent[],
  attempts: readonly Attempt[],
): AttemptSection[] {
  const byNumber = new Map(attempts.map((attempt) => [attempt.attempt, attempt]));
  const eventsOf = new Map<number, JobEvent[]>(attempts.map((attempt) => [attempt.attempt, []]));
  let number = 0;
  for (const event of events) {
    number = event.attempt ?? number;
    eventsOf.set(number, [...(eventsOf.get(number) ?? []), event]);
  }
  return [...eventsOf]
    .sort(([a], [b]) => b - a)
    .map(([each, own]) => ({
      number: each,
      attempt: byNumber.get(each) ?? null,
      // Nodes report their events a little later, with the original time.
      groups: grouped(own.toSorted((a, b) => Date.parse(a.time) - Date.parse(b.time))).toReversed(),
    }));
}

function grouped(events: readonly JobEvent[]): EventGroup[] {
  const runs: JobEvent[][] = [];
  for (const event of events) {
    const last = runs.at(-1);
    if (last?.[0]?.kind === "checkpoint" && event.kind === "checkpoint") last.push(event);
    else runs.push([event]);
  }
  return runs.flatMap((run) => (run.length > MAX_UNGROUPED ? [run.toReversed()] : short(run)));
}

/** A short run event by event; only what the retention deletes at once stays together. */
function short(run: readonly JobEvent[]): EventGroup[] {
  const groups: EventGroup[] = [];
  for (const event of run) {
    const last = groups.at(-1);
    if (last?.[0] && isDeletion(last[0]) && isDeletion(event)) last.unshift(event);
    else groups.push([event]);
  }
  return groups;
}

function isDeletion({ kind, data }: JobEvent): boolean {
  return kind === "checkpoint" && data.state === "deleting";
}

const MAX_SIZES = 6;

/** The number of workers of an attempt by generation: "4 → 3 → 4 workers". */
export function workersOf({
  generations,
  world_size,
}: Pick<Attempt, "generations" | "world_size">) {
  const sizes = generations
    .map((generation) => generation.world_size)
    .filter((size, i, all) => size !== all[i - 1]);
  if (sizes.length < 2) return plural(world_size, "worker");
  const omitted = sizes.length > MAX_SIZES ? "… → " : "";
  return `${omitted}${sizes.slice(-MAX_SIZES).join(" → ")} workers`;
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

/** The exit of a rank: "rank 1 · SIGKILL (9)", "rank 0 · exit code 3". */
export function exitText(failure: NonNullable<Attempt["failure"]>): string {
  const { rank, signal, exit_code } = failure;
  return [
    ...(rank === null || rank === undefined ? [] : [`rank ${rank}`]),
    ...(signal ? [SIGNALS[signal] ? `${SIGNALS[signal]} (${signal})` : `signal ${signal}`] : []),
    ...(typeof exit_code === "number" ? [`exit code ${exit_code}`] : []),
  ].join(" · ");
}
