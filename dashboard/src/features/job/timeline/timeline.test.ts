import { describe, expect, it } from "vitest";
import type { Attempt, JobEvent } from "@/shared/api/types";
import {
  attemptSections,
  checkpointSummary,
  exitText,
  failuresOf,
  savedCheckpoints,
  statePeriods,
  timeByState,
  workersOf,
} from "./timeline";

let seq = 0;
const event = (second: number, kind: string, attempt: number | null, state?: string): JobEvent => ({
  seq: ++seq,
  time: new Date(second * 1000).toISOString(),
  kind,
  code: kind,
  reason: `${kind} ${state ?? ""}`,
  attempt,
  data: state === undefined ? {} : { state },
});
const attempt = (number: number) => ({ attempt: number }) as Attempt;

describe("statePeriods", () => {
  const events = [
    event(0, "state", null, "queued"),
    event(5, "state", 1, "running"),
    event(6, "checkpoint", 1),
    event(15, "state", 1, "recovering"),
    event(16, "state", 2, "running"),
  ];

  it("last until the next state, and the last one until the end", () => {
    const periods = statePeriods(events, 20_000);
    expect(periods.map(({ state, begin, end }) => [state, begin, end])).toEqual([
      ["queued", 0, 5000],
      ["running", 5000, 15_000],
      ["recovering", 15_000, 16_000],
      ["running", 16_000, 20_000],
    ]);
    expect(timeByState(periods)).toEqual([
      ["running", 14_000],
      ["queued", 5000],
      ["recovering", 1000],
    ]);
  });

  it("never end before they begin, as when a clock is behind", () => {
    expect(statePeriods(events, 1000).at(-1)?.end).toBe(16_000);
  });
});

describe("failuresOf", () => {
  it("includes failures answered in place, but no preemption or resize", () => {
    const incident = (second: number | null, cause: string, is_move = false) => ({
      failure: { cause, message: `${cause}!` },
      is_move,
      detected_at: second === null ? null : new Date(second * 1000).toISOString(),
    });
    const timeline = [
      incident(1, "node_lost"),
      incident(2, "killed"),
      incident(null, "preempted", true),
      incident(3, "resized", true),
    ];
    expect(failuresOf([{ timeline: timeline as unknown as Attempt["timeline"] }])).toEqual([
      { time: 1000, message: "node_lost!" },
      { time: 2000, message: "killed!" },
    ]);
  });
});

describe("attemptSections", () => {
  it("has the newest attempt first, and in it the newest event", () => {
    const events = [
      event(0, "state", null),
      event(1, "attempt", 1),
      event(2, "note", null),
      event(3, "attempt", 2),
    ];
    const sections = attemptSections(events, [attempt(1), attempt(2)]);
    expect(sections.map(({ number }) => number)).toEqual([2, 1, 0]);
    expect(sections[1]?.groups.map(([first]) => first?.kind)).toEqual(["note", "attempt"]);
    expect(sections[2]?.attempt).toBeNull();
  });

  it("sorts by time, not by arrival", () => {
    const late = [event(9, "checkpoint", 1), event(8, "note", 1)];
    const [section] = attemptSections(late, [attempt(1)]);
    expect(section?.groups.map(([first]) => first?.kind)).toEqual(["checkpoint", "note"]);
  });

  it("groups many checkpoint events in a row", () => {
    const saved = Array.from({ length: 5 }, (_, i) => event(i, "checkpoint", 1));
    const [section] = attemptSections([...saved, event(9, "note", 1)], [attempt(1)]);
    expect(section?.groups.map((group) => group.length)).toEqual([1, 5]);
    expect(attemptSections(saved.slice(0, 2), [attempt(1)])[0]?.groups).toHaveLength(2);
  });

  it("groups deletions in a row, however few", () => {
    const of = (second: number, state: string): JobEvent => ({
      ...event(second, "checkpoint", 1),
      data: { id: "a", step: second, state },
    });
    const events = [of(1, "committed"), of(2, "deleting"), of(3, "deleting"), event(4, "note", 1)];
    const [section] = attemptSections([...events, of(5, "deleting")], [attempt(1)]);
    expect(section?.groups.map((group) => group.map(({ data }) => data.step))).toEqual([
      [5],
      [undefined],
      [3, 2],
      [1],
    ]);
  });
});

describe("workersOf", () => {
  const had = (...sizes: number[]) =>
    workersOf({
      world_size: sizes.at(-1) ?? 1,
      generations: sizes.map((size, i) => ({
        generation: i + 1,
        time: "2026-01-05T09:30:00Z",
        reason: "",
        world_size: size,
        allocation: [],
        failure: null,
      })),
    });

  it("shows each size once, in order", () => {
    expect(had(1)).toBe("1 worker");
    expect(had(4, 4)).toBe("4 workers");
    expect(had(4, 3, 3, 4)).toBe("4 → 3 → 4 workers");
    expect(had(1, 2, 3, 4, 5, 6, 7)).toBe("… → 2 → 3 → 4 → 5 → 6 → 7 workers");
  });
});

describe("exitText", () => {
  it("names rank, signal and exit code", () => {
    expect(exitText({ rank: 1, signal: 9, exit_code: null, message: "" })).toBe(
      "rank 1 · SIGKILL (9)",
    );
    expect(exitText({ rank: 0, exit_code: 3, message: "" })).toBe("rank 0 · exit code 3");
    expect(exitText({ message: "gone" })).toBe("");
  });
});

describe("savedCheckpoints", () => {
  const about = (second: number, id: string, step: number, state: string): JobEvent => ({
    ...event(second, "checkpoint", 1, state),
    data: { id, step, state },
  });
  const events = [
    about(1, "a", 10, "committed"),
    about(2, "b", 20, "committed"),
    event(3, "state", 1, "paused"),
    about(4, "a", 10, "deleting"),
  ];

  it("has each checkpoint once, with its newest status", () => {
    expect(savedCheckpoints(events)).toEqual([
      { id: "a", time: 1000, step: 10, status: "deleted" },
      { id: "b", time: 2000, step: 20, status: "saved" },
    ]);
  });

  it("are summarized", () => {
    expect(checkpointSummary(events.filter(({ kind }) => kind === "checkpoint"))).toBe(
      "2 saved, 1 deleted",
    );
    expect(checkpointSummary(events.slice(0, 1))).toBe("1 saved");
  });

  it("are corrupt, not deleted, where a file has changed", () => {
    const corrupt = [...events, about(5, "b", 20, "corrupt")];
    expect(savedCheckpoints(corrupt)[1]?.status).toBe("corrupt");
    expect(checkpointSummary(corrupt.slice(-1))).toBe("1 corrupt");
  });
});
