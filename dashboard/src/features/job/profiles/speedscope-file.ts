/** Chrome traces of `torch.profiler` in speedscope's own format, whose importer gives every call of
 * an operator a name of its own and refuses calls that overlap. */

import { plural } from "@/shared/format";

const SCHEMA = "https://www.speedscope.app/file-format-schema.json";

/** A call on one thread or stream; times in microseconds since the first one of the trace. */
interface Call {
  frame: number;
  start: number;
  end: number;
}

interface OpenCall extends Call {
  /** Calls that overlap its end: they begin when it has ended. */
  after: Call[];
}

interface Marker {
  type: "O" | "C";
  frame: number;
  at: number;
}

interface ThreadProfile {
  type: "evented";
  name: string;
  unit: "microseconds";
  startValue: number;
  endValue: number;
  events: Marker[];
}

export interface SpeedscopeFile {
  $schema: typeof SCHEMA;
  name: string;
  activeProfileIndex: number;
  shared: { frames: { name: string }[] };
  profiles: ThreadProfile[];
}

type Id = string | number;

interface TraceEvent {
  ph: string;
  name: string;
  cat?: string;
  pid: Id;
  tid: Id;
  ts: number;
  dur: number;
  args?: { name?: unknown; labels?: unknown };
}

/**
 * A trace with one profile per thread and stream; the thread with the most calls is shown first.
 *
 * @param trace the parsed JSON of a Chrome trace
 * @param name of the whole
 * @throws Error it is no such trace, or has no calls
 */
export function toSpeedscope(trace: unknown, name: string): SpeedscopeFile {
  const found = (trace as { traceEvents?: unknown } | null)?.traceEvents;
  if (!Array.isArray(found)) throw new Error("The file is no Chrome trace");
  const events = found.filter(isEvent);
  const calls = events.filter(isCall);
  if (calls.length === 0) throw new Error("The trace has no calls");
  const zero = calls.reduce((least, { ts }) => Math.min(least, ts), Number.POSITIVE_INFINITY);
  const end = calls.reduce((most, { ts, dur }) => Math.max(most, ts + dur), zero) - zero;
  const frames = new Map<string, number>();
  const threads = new Map<string, Call[]>();
  for (const { name: called, pid, tid, ts, dur } of calls) {
    const frame = frames.get(called) ?? frames.size;
    frames.set(called, frame);
    const call = { frame, start: ts - zero, end: ts - zero + dur };
    const thread = threads.get(keyOf(pid, tid));
    if (thread) thread.push(call);
    else threads.set(keyOf(pid, tid), [call]);
  }
  const names = threadNames(events);
  const ordered = [...threads].sort(([, a], [, b]) => b.length - a.length);
  return {
    $schema: SCHEMA,
    name,
    activeProfileIndex: 0,
    shared: { frames: [...frames.keys()].map((called) => ({ name: called })) },
    profiles: ordered.map(([key, called]) => ({
      type: "evented",
      name: `${names.get(key) ?? key} · ${plural(called.length, "call")}`,
      unit: "microseconds",
      startValue: 0,
      endValue: end,
      events: markersOf(called),
    })),
  };
}

function isEvent(value: unknown): value is TraceEvent {
  return typeof value === "object" && value !== null;
}

function isCall({ ph, cat, name, ts, dur }: TraceEvent): boolean {
  // "Trace" is the recording itself.
  return (
    ph === "X" &&
    cat !== "Trace" &&
    typeof name === "string" &&
    Number.isFinite(ts) &&
    Number.isFinite(dur) &&
    dur >= 0
  );
}

function keyOf(pid: Id, tid: Id): string {
  return `${pid}/${tid}`;
}

/** Names of threads and streams, with that of the device before them. */
function threadNames(events: TraceEvent[]): Map<string, string> {
  const notes = events.filter(({ ph }) => ph === "M");
  const devices = new Map<Id, string>();
  for (const { name, pid, args } of notes) {
    if (name === "process_labels") devices.set(pid, String(args?.labels ?? ""));
  }
  const names = new Map<string, string>();
  for (const { name, pid, tid, args } of notes) {
    if (name !== "thread_name") continue;
    const parts = [devices.get(pid), String(args?.name ?? tid).trim()];
    names.set(keyOf(pid, tid), parts.filter(Boolean).join(", "));
  }
  return names;
}

/** The beginnings and ends of a thread's calls, each within the call that made it. */
function markersOf(calls: Call[]): Marker[] {
  const markers: Marker[] = [];
  const open: OpenCall[] = [];

  const begin = (call: Call) => {
    endUntil(call.start);
    const caller = open.at(-1);
    let end = call.end;
    if (caller && end > caller.end) {
      // Annotations begin within the call that notes their beginning. The larger part counts.
      if (end - caller.end > caller.end - call.start) {
        caller.after.push({ ...call, start: caller.end });
        return;
      }
      end = caller.end;
    }
    markers.push({ type: "O", frame: call.frame, at: call.start });
    open.push({ ...call, end, after: [] });
  };

  const endUntil = (time: number) => {
    for (let last = open.at(-1); last && last.end <= time; last = open.at(-1)) {
      open.pop();
      markers.push({ type: "C", frame: last.frame, at: last.end });
      for (const call of last.after.sort(callerFirst)) begin(call);
    }
  };

  for (const call of calls.sort(callerFirst)) begin(call);
  endUntil(Number.POSITIVE_INFINITY);
  return markers;
}

function callerFirst(a: Call, b: Call): number {
  return a.start - b.start || b.end - a.end;
}
