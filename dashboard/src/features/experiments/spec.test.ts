import { expect, test } from "vitest";
import { planText } from "./spec";

const textOf = (problems: (string | null)[], runs: number, hint: string | null = null) =>
  planText({
    name: "speed",
    spec: {},
    code_missing: false,
    hint,
    runs,
    configurations: problems.map((problem, i) => ({
      number: i + 1,
      values: { "resources.workers": i + 1 },
      problem,
    })),
  });

test("a plan names its trials and those that cannot run", () => {
  expect(textOf([null, null], 2)).toBe("Valid. 2 trials: workers 1; workers 2.");
  expect(textOf([null], 1, "No job has a metric los; did you mean loss?")).toBe(
    "Valid. 1 trial: workers 1. No job has a metric los; did you mean loss?",
  );
  expect(textOf([null, "too many"], 6)).toBe(
    "Valid. 2 trials, of which 1 cannot run, 6 runs: workers 1; workers 2 (cannot run: too many).",
  );
});
