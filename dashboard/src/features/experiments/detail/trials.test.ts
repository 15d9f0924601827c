import { expect, it } from "vitest";
import type { Trial } from "@/shared/api/types";
import { stepsText } from "../runs";
import { fieldLabels, valueText } from "../spec";
import { bestSoFar, configurationsOf, objectiveText, sortedTrials } from "./trials";

function run(number: number, repeat: number, objective: number | null, rate = number): Trial {
  return {
    number,
    repeat,
    objective,
    objective_step: null,
    results: [],
    job_id: objective === null ? null : `j${number}${repeat}`,
    state: objective === null ? "pending" : "completed",
    values: { "training.learning_rate": rate },
  } as unknown as Trial;
}

it("a configuration has a mean when each of its runs has a value", () => {
  const found = configurationsOf([run(1, 1, 0.5), run(1, 2, 0.7), run(2, 1, 0.9), run(2, 2, null)]);
  expect(found.map(({ number, mean, jobId }) => [number, mean, jobId])).toEqual([
    [1, 0.6, "j11"],
    [2, null, "j21"],
  ]);
});

/** A run that has not completed, with its results at the rungs of 10 and 30 steps. */
function atRung(number: number, repeat: number, ...values: number[]): Trial {
  return {
    ...run(number, repeat, values.at(-1) ?? null),
    state: "stopped",
    objective_step: values.length > 1 ? 30 : 10,
    results: values.map((value, i) => ({ step: 10 * 3 ** i, value })),
  };
}

it("a mean is that at the last rung of all repeats until they have completed", () => {
  const found = configurationsOf([
    atRung(1, 1, 0.25, 0.9),
    atRung(1, 2, 0.75),
    atRung(2, 1, 0.5, 0.6),
    { ...atRung(2, 2, 0.5, 0.8), objective: 0.9, objective_step: null, state: "completed" },
    run(3, 1, 0.5),
  ]);
  expect(found.map(({ mean, step }) => objectiveText(mean, step))).toEqual([
    "0.5 at step 10",
    "0.7 at step 30",
    "0.5",
  ]);
});

it("values at a rung are sorted after those of completed runs", () => {
  const runs = [atRung(1, 1, 0.99), run(2, 1, 0.5), run(3, 1, 0.7), run(4, 1, null)];
  const numbers = (sort: string) => sortedTrials(runs, sort).map(({ number }) => number);
  expect(numbers("-value")).toEqual([3, 2, 1, 4]);
  expect(numbers("value")).toEqual([2, 3, 1, 4]);
});

it("the best so far follows the goal and skips missing values", () => {
  const values = [null, 0.5, null, 0.7, 0.6];
  expect(bestSoFar(values, "max")).toEqual([null, 0.5, 0.5, 0.7, 0.7]);
  expect(bestSoFar(values, "min")).toEqual([null, 0.5, 0.5, 0.5, 0.5]);
});

it("runs are sorted by a field or a value, those without one last", () => {
  const runs = [run(1, 1, 0.5, 0.1), run(2, 1, null, 0.001), run(3, 1, 0.9, 0.01)];
  const numbers = (sort: string) => sortedTrials(runs, sort).map(({ number }) => number);
  expect(numbers("training.learning_rate")).toEqual([2, 3, 1]);
  expect(numbers("value")).toEqual([1, 3, 2]);
  expect(numbers("-value")).toEqual([3, 1, 2]);
  expect(numbers("-number")).toEqual([3, 2, 1]);
});

it("runs are sorted by rung, those that reached none last", () => {
  const runs = [1, null, 3].map((rung, i) => ({ ...run(i + 1, 1, 0.5), rung }) as Trial);
  expect(sortedTrials(runs, "-rung").map(({ number }) => number)).toEqual([3, 1, 2]);
});

it("steps are compared with those of all runs in full", () => {
  expect(stepsText({ steps: { taken: 1620, in_full: 14580 } })).toBe(
    "1,620 of 14,580 steps that all runs in full would take (11 %)",
  );
  expect(stepsText({ steps: null })).toBeNull();
});

it("fields are short unless two end in the same word", () => {
  expect(fieldLabels(["training.learning_rate", "task.params.seed", "training.seed"])).toEqual({
    "training.learning_rate": "learning_rate",
    "task.params.seed": "task.params.seed",
    "training.seed": "training.seed",
  });
});

it("values of any type have a text", () => {
  expect([0.0012345678, true, [64, 64], "adam", null].map(valueText)).toEqual([
    "0.001235",
    "true",
    "[64,64]",
    "adam",
    "null",
  ]);
});
