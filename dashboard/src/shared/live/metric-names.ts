import { bytes, duration, metric, si } from "../format";

/** Parts of a step's time, in order. */
export const STEP_PARTS = [
  "data_seconds",
  "forward_seconds",
  "backward_seconds",
  "communication_seconds",
  "optimizer_seconds",
] as const;

/** Communication hidden behind the backward pass. */
export const HIDDEN = "communication_hidden_seconds";

/** Compression and decompression of gradients. */
export const COMPRESSION = "compression_seconds";

/** Series of both the job and every rank; a job may lack some. */
export const TIMING = [
  "step_seconds",
  ...STEP_PARTS,
  HIDDEN,
  COMPRESSION,
  "peak_memory_bytes",
] as const;

/** Idle share of a pipeline's step: measured, and implied by its schedule. */
const BUBBLE = ["bubble_fraction", "bubble_fraction_expected"] as const;

/** The slowest rank, and the ratio of its time to the median. */
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

/** Whether a logarithmic axis makes sense: not for a share, nor for a rate that ends at 0. */
export function spansMagnitudes(name: string): boolean {
  return !LINEAR.has(name);
}

export function isKnown(name: string): boolean {
  return KNOWN.has(name);
}

/** As the coordinator finds one for a job's main metric: `eval_loss`, `val/loss`, `valid.f1`. */
const VALIDATION = /^(?:eval|val|valid|validation)[_/.-](.*)$/i;

export function isValidation(name: string): boolean {
  return VALIDATION.test(name);
}

/** Whether a metric is the validation loss or accuracy, in any spelling. */
export function isValidationOf(measure: "loss" | "accuracy", name: string): boolean {
  return VALIDATION.exec(name)?.[1]?.toLowerCase() === measure;
}

/** Whether the lowest or the highest value is the best, by the name; null where it does not tell. */
export function impliedGoal(name: string): "min" | "max" | null {
  if (/loss$/i.test(name)) return "min";
  return /accuracy$/i.test(name) ? "max" : null;
}

/** Series named by the job's own code. */
export function customNames(metrics: Record<string, unknown>): string[] {
  return Object.keys(metrics)
    .filter((name) => !KNOWN.has(name))
    .sort();
}

/** Series of the job without per-rank ones; a job may lack some. */
export function jobWideNames(metrics: Record<string, unknown>): string[] {
  return [...LEARNING, ...BUBBLE, ...SLOWEST, ...customNames(metrics)];
}

const SPEED = new Set<string>([...TIMING, ...BUBBLE, "samples_per_second", "learning_rate"]);

export function isAboutSpeed(name: string): boolean {
  return SPEED.has(name);
}

/**
 * "bits_per_byte" → "Bits per byte", "eval_f1" → "Validation f1"; an abbreviation or another
 * structure stays as it is.
 */
export function labelOf(name: string): string {
  if (name === "step_seconds") return "Step time";
  if (isValidationOf("loss", name)) return "Validation loss";
  if (isValidationOf("accuracy", name)) return "Validation accuracy";
  if (!/^([a-z0-9]+_[a-z0-9_]+|[a-z]{4,})$/.test(name)) return name;
  const words = name.replace(/^eval_/, "validation_").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** The format of a series' values, by the unit in its name. */
export function formatOf(name: string): (value: number | null) => string {
  if (name.endsWith("_seconds")) return duration;
  if (name.endsWith("_bytes")) return bytes;
  return name.endsWith("_per_second") ? si : metric;
}
