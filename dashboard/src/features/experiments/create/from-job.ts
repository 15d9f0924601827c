import type { Job } from "@/shared/api/types";
import { specText } from "@/shared/spec/spec-text";
import { isObject, type Kind } from "./experiment-fields";

/** Kinds of experiments that are offered on the page of a job. */
export type KindOnJob = Extract<Kind, "sweep" | "benchmark">;

/** Keys of a spec that an experiment on the job does not take over. */
const OF_ONE_JOB = ["user", "notes"];
/** Most characters of the job's name in that of the experiment, which may have 128. */
const NAME_LENGTH = 100;
const OPTION = /^--?([A-Za-z_][\w-]{0,63})$/;
const OPTION_WITH_NUMBER = /^(--?([A-Za-z_][\w-]{0,63})=)(.+)$/;
/** No 007: that is a name. */
const NUMBER = /^-?(0|[1-9]\d{0,14})(\.\d+)?([eE][-+]?\d\d?)?$/;
/** Names of what is swept first, the most usual at the top. */
const RATES = ["lr", "learning_rate", "learning-rate"];

type Spec = Record<string, unknown>;

/** An experiment in YAML on a job that was submitted before, with its code. */
export function experimentOn(job: Pick<Job, "name" | "spec" | "main_metric">, kind: KindOnJob) {
  const base = baseOf(job.spec ?? {});
  const named = { name: `${job.name.slice(0, NAME_LENGTH)} ${kind}`, kind, job: base };
  if (kind === "benchmark") {
    return specText({ ...named, space: { "resources.workers": [workersOf(base)] }, repeats: 3 });
  }
  const { name: metric, goal } = job.main_metric ?? { name: "loss", goal: "min" };
  return specText({
    ...named,
    space: firstAxis(base),
    method: "grid",
    objective: { metric, goal },
  });
}

function baseOf(spec: Spec): Spec {
  const base = Object.fromEntries(
    Object.entries(spec).filter(([key]) => !OF_ONE_JOB.includes(key)),
  );
  if (isObject(base.training)) {
    // A run would wait there until a user resumes it.
    const { pause_at: _, ...training } = base.training;
    base.training = training;
  }
  return withParameters(base);
}

/** A spec whose script has its numbers as parameters: `--epochs 3` becomes `--epochs ${epochs}`. */
export function withParameters(spec: Spec): Spec {
  const { script } = spec;
  if (!isObject(script) || !Array.isArray(script.args)) return spec;
  const parameters: Spec = isObject(spec.parameters) ? { ...spec.parameters } : {};
  const taken = (name: string, value: string) => {
    if (name in parameters || !NUMBER.test(value)) return value;
    parameters[name] = Number(value);
    return `\${${name}}`;
  };
  const given = script.args.map(String);
  const args = given.map((argument, at) => {
    const [, start, joined, value] = OPTION_WITH_NUMBER.exec(argument) ?? [];
    if (start && joined && value) return start + taken(joined, value);
    const name = OPTION.exec(given[at - 1] ?? "")?.[1];
    return name ? taken(name, argument) : argument;
  });
  return { ...spec, script: { ...script, args }, parameters };
}

/** The field that most sweeps vary, with its present value; others are offered beside it. */
function firstAxis({ task, training, parameters }: Spec): Record<string, unknown[]> {
  const own = isObject(parameters) ? parameters : {};
  const numbers = Object.keys(own).filter((name) => typeof own[name] === "number");
  const first = RATES.find((name) => name in own) ?? numbers.find((name) => name !== "seed");
  if (first !== undefined) return { [`parameters.${first}`]: [own[first]] };
  const rate = isObject(training) ? training.learning_rate : undefined;
  return task && rate !== undefined ? { "training.learning_rate": [rate] } : {};
}

function workersOf({ resources }: Spec): unknown {
  const workers = isObject(resources) ? (resources.workers ?? resources.min_workers) : undefined;
  return workers ?? 1;
}
