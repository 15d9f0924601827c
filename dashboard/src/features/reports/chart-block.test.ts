import { expect, it } from "vitest";
import { fenced, parseBlock } from "./chart-block";

const blockOf = (text: string) => {
  const parsed = parseBlock(text);
  if ("errors" in parsed) throw new Error(parsed.errors.join(" "));
  return parsed.block;
};
const errorsOf = (text: string) => {
  const parsed = parseBlock(text);
  return "errors" in parsed ? parsed.errors : [];
};

it("a chart is of jobs by id, of a query or of an experiment", () => {
  expect(blockOf("jobs: [9170762e3862, a1]\nmetric: loss")).toEqual({
    query: 'id:"9170762e3862","a1" archived:yes,no',
    jobs: ["9170762e3862", "a1"],
    metrics: ["loss"],
    x: "step",
    smooth: 0,
    log: false,
    seeds: undefined,
  });
  expect(blockOf("query: state:failed lr>0.01\nmetric: [loss, eval_loss]")).toMatchObject({
    query: "state:failed lr>0.01",
    metrics: ["loss", "eval_loss"],
  });
  const rest = "x: elapsed\nsmooth: 0.9\nlog: true\nseeds: range\nmetric: f1";
  expect(blockOf(`experiment: 'the "best"'\n${rest}`)).toMatchObject({
    query: 'experiment="the \\"best\\"" archived:yes,no',
    x: "elapsed",
    smooth: 0.9,
    log: true,
    seeds: "range",
  });
});

it("a chart that is written is read back", () => {
  const raw = {
    jobs: ["9170762e3862"],
    metric: ["val/f1"],
    x: "metrics.a b",
    smooth: 0.5,
    log: true,
  };
  const text = fenced(raw).replace(/^```chart\n|```\n$/g, "");
  expect(blockOf(text)).toMatchObject({
    jobs: raw.jobs,
    metrics: raw.metric,
    x: raw.x,
    smooth: 0.5,
    log: true,
  });
});

it("each error names the key and what is allowed", () => {
  expect(errorsOf("job: a\nmetric: loss\nx: steps\nsmooth: 1\nlog: yes\nseeds: all")).toEqual([
    "job: unknown key; allowed are jobs, query, experiment, metric, x, smooth, log, seeds.",
    'x: must be step, time, elapsed or metrics.NAME, not "steps".',
    'smooth: must be a number from 0 to 0.999, not "1".',
    'log: must be true or false, not "yes".',
    'seeds: must be range or deviation, not "all".',
    "Give one of jobs, query, experiment.",
  ]);
  expect(errorsOf("jobs: []\nquery: a")).toEqual([
    "Give one of jobs, query, experiment, not jobs and query.",
    "metric: must be the name of a metric, or a list of names.",
  ]);
  expect(errorsOf("jobs: [a, [b]]\nmetric:\n  a: b")).toEqual([
    'jobs: must be the id of a job, or a list of ids, not ["a",["b"]].',
    'metric: must be the name of a metric, or a list of names, not {"a":"b"}.',
  ]);
  expect(errorsOf("loss")).toEqual([expect.stringContaining("one key a line: jobs")]);
  expect(errorsOf("jobs: [a")[0]).toMatch(/^This is not YAML: /);
});
