import { type BenchmarkRow, MAX_COMPARED, type Trial } from "@/shared/api/types";
import { bytes, duration, metric, NOTHING, rate, share } from "@/shared/format";
import { fieldLabels, valueText } from "../spec";

/** A column of the table of a benchmark: how a row is written, and what it is sorted by. */
export interface BenchmarkColumn {
  id: string;
  title: string;
  /** Explanation of the title. */
  hint?: string;
  /** Text: aligned at the left. */
  isText?: boolean;
  text: (row: BenchmarkRow) => string;
  /** A second line. */
  note?: (row: BenchmarkRow) => string;
  sortValue: (row: BenchmarkRow) => number | string | null;
}

/** `trial` or a column; `-` before it: in descending order. */
export type BenchmarkSort = string;

const CELL = [
  ["strategy", "parallelism.strategy", "strategy"],
  ["workers", "resources.workers", "workers"],
  ["precision", "training.precision", "precision"],
  ["batch_size", "training.global_batch_size", "batch"],
  ["compression", "parallelism.gradient_sync.compression", "compression"],
] as const;

const SPEED = figure("samples_per_second", "samples/s", rate, {
  note: ({ spread }) => interval(spread.samples_per_second, rate),
});
const FIGURES: BenchmarkColumn[] = [
  figure("step_seconds", "step", duration, {
    hint: "Median and 95th percentile of the time of a step",
    note: ({ step_seconds_p95: p95, predicted }) =>
      [
        ...(p95 === null ? [] : [`p95 ${duration(p95)}`]),
        ...(predicted === null ? [] : [`predicted ${duration(predicted.step_seconds)}`]),
      ].join(", "),
  }),
  figure("communication_share", "comm.", share, {
    hint: "Part of the time of a step in which ranks wait for each other",
  }),
  figure("peak_memory_bytes", "memory", bytes, {
    hint: "Peak of the rank that needs most: of tensors on a GPU, of the process on a CPU",
    note: ({ predicted }) =>
      // On a CPU the memory is that of the process, which nothing predicts.
      predicted === null || predicted.measured_memory_bytes === null
        ? ""
        : `predicted tensors ${bytes(predicted.peak_memory_bytes)}`,
  }),
  figure("final_loss", "loss", metric),
];
const OPTIONAL: BenchmarkColumn[] = [
  figure("model_flops_utilization", "MFU", (value) => share(value === null ? null : value / 100), {
    hint: "Model FLOP utilization; not measured on a CPU",
  }),
  figure("tokens_per_second", "tokens/s", rate),
  figure("energy_per_sample", "J/sample", metric),
];
const RATIO: BenchmarkColumn = {
  id: "ratio",
  title: "vs baseline",
  hint: "Objective over that of the baseline, with a 95 % interval over the repeats",
  text: ({ is_baseline, ratio }) => times(is_baseline, ratio),
  note: ({ ratio_interval: ends, verdict }) => compared(ends, verdict),
  sortValue: ({ is_baseline, ratio }) => (is_baseline ? 1 : ratio),
};

const COMMUNICATION: BenchmarkColumn[] = [
  figure("communication_bytes", "sent per step", bytes, {
    hint: "Bytes that rank 0 sends to combine gradients, as the engine counts them",
  }),
  figure("bandwidth", "bandwidth", (value) => (value === null ? NOTHING : `${bytes(value)}/s`), {
    hint: "Sent bytes by latency",
  }),
  figure("latency_seconds", "latency", duration, {
    hint: "Median time of communication in a step, waited for or hidden behind computation",
  }),
  {
    id: "speedup",
    title: "speed-up",
    hint: "Samples/s over those of the baseline, with a 95 % interval over the repeats",
    text: ({ is_baseline, speedup }) => times(is_baseline, speedup),
    note: ({ speedup_interval: ends, speedup_verdict: verdict }) => compared(ends, verdict),
    sortValue: ({ is_baseline, speedup }) => (is_baseline ? 1 : speedup),
  },
];

/** What some rows differ in, and the figures of their communication. */
export function communicationColumns(rows: readonly BenchmarkRow[]): BenchmarkColumn[] {
  return [...differing(rows), ...COMMUNICATION];
}

/** The columns of some rows: what they differ in, and figures; one that most benchmarks lack only
 * where it was measured. */
export function columnsOf(rows: readonly BenchmarkRow[], objective: string): BenchmarkColumn[] {
  return [
    ...differing(rows),
    ...(objective === "samples_per_second" ? [] : [figure("objective", objective, metric)]),
    SPEED,
    ...(rows.some((row) => row.is_baseline) ? [RATIO] : []),
    ...OPTIONAL.filter((column) => isKnown(rows, column)),
    ...FIGURES,
  ];
}

/** What all rows have in common, which has no column: "strategy ddp, precision fp32". */
export function commonText(rows: readonly BenchmarkRow[]): string {
  const [row] = rows;
  if (row === undefined || rows.length < 2) return "";
  const columns = cellColumns(rows).filter((column) => !differs(rows, column));
  return columns.map(({ title, text }) => `${title} ${text(row)}`).join(", ");
}

/** The columns of the combination in which the rows differ; of a single one all. */
function differing(rows: readonly BenchmarkRow[]): BenchmarkColumn[] {
  const columns = cellColumns(rows);
  return rows.length < 2 ? columns : columns.filter((column) => differs(rows, column));
}

function differs(rows: readonly BenchmarkRow[], { text }: BenchmarkColumn): boolean {
  return new Set(rows.map(text)).size > 1;
}

/** The columns that say which combination a row is of. */
function cellColumns(rows: readonly BenchmarkRow[]): BenchmarkColumn[] {
  const labels = fieldLabels(Object.keys(rows[0]?.values ?? {}));
  const own = new Set<string>(CELL.map(([, field]) => field));
  return [
    ...CELL.map(([key, , title]) =>
      plain(key, title, (row) => row[key], key !== "workers" && key !== "batch_size"),
    ).filter((column) => isKnown(rows, column)),
    ...Object.entries(labels)
      .filter(([field]) => !own.has(field))
      .map(([field, label]) => plain(field, label, (row) => row.values[field])),
  ];
}

function isKnown(rows: readonly BenchmarkRow[], { sortValue }: BenchmarkColumn): boolean {
  return rows.some((row) => sortValue(row) !== null);
}

function compared(ends: number[] | null, verdict: BenchmarkRow["verdict"]): string {
  const text = interval(ends, three);
  return verdict === "no_difference" ? `no difference shown (${text})` : text;
}

function times(isBaseline: boolean, ratio: number | null): string {
  return isBaseline ? "baseline" : ratio === null ? NOTHING : `${three(ratio)} ×`;
}

/** The first job of the baseline, then those of the others, as many as a chart can show. */
export function jobsAgainstBaseline(
  rows: readonly BenchmarkRow[],
  trials: readonly Trial[],
): string[] {
  const baselineFirst = rows.toSorted((a, b) => Number(b.is_baseline) - Number(a.is_baseline));
  const jobs = baselineFirst.flatMap(
    (row) => trials.find((run) => run.number === row.trial && run.job_id !== null)?.job_id ?? [],
  );
  return jobs.slice(0, MAX_COMPARED);
}

/** Rows in an order; those without a value are last either way. */
export function sortedRows(
  rows: readonly BenchmarkRow[],
  columns: readonly BenchmarkColumn[],
  sort: BenchmarkSort,
): BenchmarkRow[] {
  const sign = sort.startsWith("-") ? -1 : 1;
  const column = columns.find(({ id }) => id === sort.replace(/^-/, ""));
  if (column === undefined) return [...rows];
  return rows.toSorted((a, b) => {
    const [left, right] = [column.sortValue(a), column.sortValue(b)];
    if (left === null || right === null) return Number(left === null) - Number(right === null);
    if (typeof left === "number" && typeof right === "number") return sign * (left - right);
    return sign * String(left).localeCompare(String(right), "en", { numeric: true });
  });
}

function figure(
  id: FigureName,
  title: string,
  text: (value: number | null) => string,
  more: Pick<BenchmarkColumn, "hint" | "note"> = {},
): BenchmarkColumn {
  return { id, title, text: (row) => text(row[id]), sortValue: (row) => row[id], ...more };
}

type FigureName =
  | "bandwidth"
  | "communication_bytes"
  | "communication_share"
  | "energy_per_sample"
  | "final_loss"
  | "latency_seconds"
  | "model_flops_utilization"
  | "objective"
  | "peak_memory_bytes"
  | "samples_per_second"
  | "step_seconds"
  | "tokens_per_second";

function plain(
  id: string,
  title: string,
  value: (row: BenchmarkRow) => unknown,
  isText = true,
): BenchmarkColumn {
  const sortValue = (row: BenchmarkRow) => {
    const found = value(row);
    if (found === null || found === undefined) return null;
    return typeof found === "number" ? found : valueText(found);
  };
  return {
    id,
    title,
    isText,
    text: (row) => {
      const found = value(row);
      return found === null || found === undefined ? NOTHING : valueText(found);
    },
    sortValue,
  };
}

export function interval(ends: number[] | null | undefined, text: (end: number) => string): string {
  const [low, high] = ends ?? [];
  return low === undefined || high === undefined ? "" : `${text(low)} to ${text(high)}`;
}

export function three(value: number): string {
  return String(Number(value.toPrecision(3)));
}
