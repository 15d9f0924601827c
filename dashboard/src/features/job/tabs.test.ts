import { describe, expect, it } from "vitest";
import { firstTab, tabsOf } from "./tabs";

const END = "2026-01-01T00:00:00Z";

describe("the first tab", () => {
  const task = {
    attempt: 1,
    finished_at: null,
    kind: "job",
    step: 0,
    spec: {},
    metrics: {},
  } as const;
  const script = { ...task, spec: { script: { path: "train.py" } } };

  it("of a queued job is the timeline", () => {
    expect(firstTab({ ...task, attempt: 0 })).toBe("timeline");
    expect(firstTab({ ...script, attempt: 0 })).toBe("timeline");
  });

  it("of a task is its curves, unless it ended before its first step", () => {
    expect(firstTab(task)).toBe("curves");
    expect(firstTab({ ...task, finished_at: END, step: 12 })).toBe("curves");
    expect(firstTab({ ...task, finished_at: END })).toBe("timeline");
  });

  it("of a script is its logs, or its curves if it reports metrics", () => {
    expect(firstTab({ ...script, finished_at: END })).toBe("logs");
    expect(firstTab({ ...script, step: 3, metrics: { "val/f1": 0.5 } })).toBe("curves");
  });
});

it("a script has no gradients tab", () => {
  expect(tabsOf({ kind: "job", spec: {} })).toContain("gradients");
  const spec = { script: { path: "train.py" } };
  expect(tabsOf({ kind: "job", spec })).not.toContain("gradients");
});

it("a run has no tabs of processes", () => {
  expect(tabsOf({ kind: "run", spec: null })).toEqual(["curves", "timeline", "outputs", "spec"]);
});
