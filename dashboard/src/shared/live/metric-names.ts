/** Parts of a step's time, in the order in which they happen. */
export const STEP_PARTS = [
  "data_seconds",
  "forward_seconds",
  "backward_seconds",
  "communication_seconds",
  "optimizer_seconds",
] as const;

/** Of the backward pass, while gradients were on their way to other ranks. */
export const HIDDEN = "communication_hidden_seconds";

/** Compressing gradients and the opposite, whatever goes on beside it. */
export const COMPRESSION = "compression_seconds";

/** Series that every rank has as well as the job; not every job has each of them. */
export const TIMING = [
  "step_seconds",
  ...STEP_PARTS,
  HIDDEN,
  COMPRESSION,
  "peak_memory_bytes",
] as const;

/** How much of a step a pipeline's ranks wait for others: measured, and what its schedule costs. */
const BUBBLE = ["bubble_fraction", "bubble_fraction_expected"] as const;

/** The rank that the others wait for, and how its own time compares with the median. */
const SLOWEST = ["slowest_rank", "slowest_rank_ratio"] as const;

const LEARNING = [
  "loss",
  "eval_loss",
  "accuracy",
  "eval_accuracy",
  "learning_rate",
  "gradient_norm",
  "samples_per_second",
] as const;

const KNOWN = new Set<string>([...TIMING, ...LEARNING, ...BUBBLE, ...SLOWEST]);

const LINEAR = new Set<string>([
  "accuracy",
  "eval_accuracy",
  "learning_rate",
  ...BUBBLE,
  ...SLOWEST,
]);

/** Whether powers of ten tell anything about it: not about a share, nor about a rate that ends at 0. */
export function spansMagnitudes(name: string): boolean {
  return !LINEAR.has(name);
}

export function isKnown(name: string): boolean {
  return KNOWN.has(name);
}

/** Series of the job that its own code named. */
export function customNames(metrics: Record<string, unknown>): string[] {
  return Object.keys(metrics)
    .filter((name) => !KNOWN.has(name))
    .sort();
}

/** Series that the job has and its ranks have not; not every job has each of them. */
export function jobWideNames(metrics: Record<string, unknown>): string[] {
  return [...LEARNING, ...BUBBLE, ...SLOWEST, ...customNames(metrics)];
}

const SPEED = new Set<string>([...TIMING, ...BUBBLE, "samples_per_second", "learning_rate"]);

export function isAboutSpeed(name: string): boolean {
  return SPEED.has(name);
}
