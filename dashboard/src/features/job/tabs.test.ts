import { describe, expect, it } from "vitest";
import { firstTab, tabsOf } from "./tabs";

const END = "2026-01-01T00:00:00Z";

describe("the first tab", () => {
  const task = { attempt: 1, finished_at: null, step: 0, spec: {}, metrics: {} } as const;
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
  expect(tabsOf({ spec: {} })).toContain("gradients");
  expect(tabsOf({ spec: { script: { path: "train.py" } } })).not.toContain("gradients");
});
