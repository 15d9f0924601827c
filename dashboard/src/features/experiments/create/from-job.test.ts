import { expect, it } from "vitest";
import { parse } from "yaml";
import { experimentOn, withParameters } from "./from-job";

const CODE = "9f3c".repeat(16);
const SCRIPT = {
  name: "net",
  user: "maria",
  notes: "first try",
  code: CODE,
  script: { path: "train.py", args: ["--lr", `\${lr}`, "--wd", `\${wd}`] },
  parameters: { wd: 0.1, lr: 0.01 },
};

it("sweeps a script with its code, by its main metric", () => {
  const main_metric = { name: "accuracy", value: 0.9, goal: "max" as const };
  expect(parse(experimentOn({ name: "net", spec: SCRIPT, main_metric }, "sweep"))).toEqual({
    name: "net sweep",
    kind: "sweep",
    job: { name: "net", code: CODE, script: SCRIPT.script, parameters: SCRIPT.parameters },
    space: { "parameters.lr": [0.01] },
    method: "grid",
    objective: { metric: "accuracy", goal: "max" },
  });
});

it("sweeps the learning rate of a task, and leaves out its pauses", () => {
  const training = { learning_rate: 0.5, pause_at: [10], steps: null };
  const spec = { name: "digits", task: { name: "digits" }, training };
  const text = experimentOn({ name: "digits", spec, main_metric: null }, "sweep");
  expect(parse(text)).toMatchObject({
    job: { training: { learning_rate: 0.5 } },
    space: { "training.learning_rate": [0.5] },
    objective: { metric: "loss", goal: "min" },
  });
  expect(text).not.toContain("pause_at");
});

it("compares numbers of workers in a benchmark", () => {
  const spec = { name: "digits", task: { name: "digits" }, resources: { workers: 4 } };
  const text = experimentOn({ name: "digits", spec, main_metric: null }, "benchmark");
  expect(parse(text)).toMatchObject({
    name: "digits benchmark",
    kind: "benchmark",
    space: { "resources.workers": [4] },
  });
  expect(text).not.toContain("objective");
});

it("makes parameters of the numbers in a script's arguments", () => {
  const args = ["run", "--epochs", "3", "--lr=1e-4", "--data", "/data", "--tag", "007", "-k", "-1"];
  expect(withParameters({ script: { path: "a.py", args } })).toEqual({
    script: {
      path: "a.py",
      args: [
        ...["run", "--epochs", `\${epochs}`, `--lr=\${lr}`, "--data", "/data", "--tag", "007"],
        ...["-k", `\${k}`],
      ],
    },
    parameters: { epochs: 3, lr: 1e-4, k: -1 },
  });
  const named = { script: { args: ["--lr", "0.1"] }, parameters: { lr: 0.2 } };
  expect(withParameters(named)).toEqual(named);
});
