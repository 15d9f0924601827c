import { expect, it } from "vitest";
import type { Experiment, Trial } from "@/shared/api/types";
import { configurationsOf } from "../trials";
import { fieldAxes, metricAxis, NUMBERS, positionOn, timeAxis } from "./axes";
import {
  groupsByRank,
  lineAt,
  linesOf,
  pathOf,
  positionAt,
  scaled,
  shareOf,
  ticksOf,
} from "./parallel";
import { rungResults } from "./rungs";
import { brushed, selectedOf, toggled, trialSearch } from "./selection";

const RATE = "training.learning_rate";
const experiment = {
  created_at: "2026-01-01T00:00:00Z",
  spec: {
    objective: { metric: "loss" },
    space: { [RATE]: { log: [0.001, 0.1] }, "task.params.hidden": [[16], [64, 64]] },
  },
} as unknown as Experiment;

function run(number: number, rate: number, objective: number | null, more = {}): Trial {
  return {
    number,
    state: "completed",
    values: { [RATE]: rate, "task.params.hidden": number === 1 ? [16] : [64, 64] },
    objective,
    objective_step: null,
    metrics: { accuracy: number / 10, lost: "NaN" },
    results: [],
    finished_at: `2026-01-01T00:0${number}:00Z`,
    job_id: null,
    ...more,
  } as unknown as Trial;
}

const TRIALS = configurationsOf([run(1, 0.001, 3), run(2, 0.01, 2), run(3, 0.1, null)]);
const AXES = [...fieldAxes(experiment, TRIALS), metricAxis("loss", "loss", TRIALS)];
const numbers = (search: Parameters<typeof selectedOf>[0]) => {
  const found = selectedOf(search, TRIALS, [NUMBERS, ...AXES]);
  return found && [...found];
};

it("a selection of the URL drops invalid values", () => {
  expect(trialSearch({ brush: { a: [1, 2], b: [2, 1], c: "1", d: [1, null] } })).toEqual({
    brush: { a: [1, 2] },
  });
  expect(trialSearch({ brush: [1, 2], selected: 3 })).toEqual({ selected: "3" });
  expect(trialSearch({ brush: null })).toEqual({});
});

it("ranges select the trials that are within all of them", () => {
  expect(numbers({})).toBeNull();
  expect(numbers({ brush: { [RATE]: [0.001, 0.01] } })).toEqual([1, 2]);
  expect(numbers({ brush: { [RATE]: [0.001, 0.01], "metric:loss": [0, 2] } })).toEqual([2]);
  expect(numbers({ brush: { "task.params.hidden": [1, 1] } })).toEqual([2, 3]);
  expect(numbers({ brush: { other: [0, 1], number: [3, 9] } })).toEqual([3]);
  expect(numbers({ selected: "2,x,1" })).toEqual([2, 1]);
});

it("a trial is added and removed, a range replaced and removed", () => {
  expect(toggled({}, 10)).toEqual({ selected: "10" });
  expect(toggled({ selected: "10" }, 9)).toEqual({ selected: "9,10" });
  expect(toggled({ selected: "9" }, 9)).toEqual({});
  expect(brushed({ brush: { a: [0, 1] } }, { a: [2, 3], b: [0, 0] })).toEqual({
    brush: { a: [2, 3], b: [0, 0] },
  });
  expect(brushed({ brush: { a: [0, 1] } }, { a: null })).toEqual({});
});

it("trials have positions on fields, metrics and time", () => {
  const [first] = TRIALS;
  if (first === undefined) throw new Error("no trial");
  expect(AXES.map((axis) => positionOn(axis, first))).toEqual([0.001, 0, 3]);
  expect(AXES.map(({ scale }) => scale.kind)).toEqual(["log", "category", "linear"]);
  expect(positionOn(timeAxis(experiment), first)).toBe(60);
  expect(positionOn(metricAxis("lost", "loss", TRIALS), first)).toBeNull();
  expect(positionOn(metricAxis("accuracy", "loss", TRIALS), first)).toBe(0.1);
});

it("lines are scaled to their axes, and found under the pointer", () => {
  const axes = scaled(AXES, TRIALS);
  const lines = linesOf(axes, TRIALS);
  expect(lines.map(({ at }) => at)).toEqual([
    [0, 0, 1],
    [expect.closeTo(0.5), 1, 0],
    [1, 1, null],
  ]);
  const [rate] = axes;
  if (rate === undefined) throw new Error("no axis");
  expect(positionAt(rate, shareOf(rate, 0.05))).toBeCloseTo(0.05);
  expect(ticksOf(rate, 200).map(({ text }) => text)).toEqual(["0.001", "0.01", "0.1"]);
  const y = (share: number) => 100 - 100 * share;
  expect(pathOf(lines.slice(2), (axis) => axis * 10, y)).toBe("M0.0 0.0L10.0 0.0");
  const at = (x: number, top: number) => lineAt(lines, [0, 10, 20], y, { x, y: top }, 8);
  expect([at(5, 24), at(5, 99), at(15, 50), at(25, 0), at(5, 80)]).toEqual([2, 1, 1, null, null]);
  const line = (share: number | null) => ({
    number: 1,
    fate: "completed" as const,
    at: [0.9, share],
  });
  const groups = (goal: string, shares: (number | null)[]) => {
    const all = shares.map(line);
    return all.map(groupsByRank(all, goal, 5));
  };
  expect(groups("min", [0, 0.3, 1, null])).toEqual([0, 2, 4, null]);
  expect(groups("max", [0, 0.3, 1, null])).toEqual([4, 2, 0, null]);
  // However close most are to the best; equal ones are in one group.
  expect(groups("max", [1, 0.99, 0.98, 0.97, 0])).toEqual([0, 1, 2, 3, 4]);
  expect(groups("min", [0.2, 0.2, 0.2])).toEqual([0, 0, 0]);
  expect(groups("min", [0.2])).toEqual([0]);
});

it("an axis of counts has whole numbers, and lines say what became of their trials", () => {
  const workers = (count: number, state = "completed") =>
    run(count, 0.1, 1, { state, values: { [RATE]: count, "task.params.hidden": [16] } });
  const trials = configurationsOf([workers(1), workers(4, "stopped"), workers(2, "queued")]);
  const space = {
    ...experiment,
    spec: { ...experiment.spec, space: { [RATE]: { range: [1, 4] } } },
  };
  const axes = scaled(fieldAxes(space as unknown as Experiment, trials), trials);
  expect(axes.flatMap((axis) => ticksOf(axis, 200).map(({ text }) => text))).toEqual([
    "1",
    "3",
    "4",
  ]);
  expect(linesOf(axes, trials).map(({ fate }) => fate)).toEqual([
    "completed",
    "stopped",
    "running",
  ]);
});

it("rungs have the mean of repeats, and what became of the trial", () => {
  const results = (...values: (number | null)[]) =>
    values.map((value, i) => ({ step: 10 * 3 ** i, value }));
  const trials = configurationsOf([
    run(1, 0.1, 0.2, { results: results(0.4, 0.2), state: "running" }),
    run(1, 0.1, 0.3, { results: results(0.6), state: "paused" }),
    run(2, 0.1, 0.3, { results: results(0.8, 0.7), state: "stopped" }),
    run(3, 0.1, 0.3, { results: results(0.9), state: "paused" }),
    run(4, 0.1, null, { results: results(null), state: "stopped" }),
    run(5, 0.1, 0.3, { results: results(0.1), state: "running" }),
  ]);
  expect(rungResults(trials).map((each) => Object.values(each))).toEqual([
    [1, 10, 0.5, "promoted"],
    [2, 10, 0.8, "promoted"],
    [2, 30, 0.7, "stopped"],
    [3, 10, 0.9, "paused"],
    [5, 10, 0.1, "promoted"],
  ]);
});
