import { describe, expect, it } from "vitest";
import type { BenchmarkRow, Trial } from "@/shared/api/types";
import {
  columnsOf,
  commonText,
  communicationColumns,
  jobsAgainstBaseline,
  sortedRows,
} from "./benchmark-rows";

const ROW: BenchmarkRow = {
  trial: 1,
  values: { "parallelism.strategy": "ddp", "training.seed": 3 },
  state: "completed",
  reason: "",
  runs: 3,
  completed: 3,
  objective: 100,
  at_rung: null,
  samples_per_second: 100,
  step_seconds: 0.5,
  peak_memory_bytes: 1024,
  steps: 10,
  duration_seconds: 5,
  spread: { samples_per_second: [90, 110] },
  strategy: "ddp",
  workers: 2,
  precision: "fp32",
  batch_size: 64,
  compression: "none",
  tokens_per_second: null,
  step_seconds_p95: 0.75,
  communication_share: 0.25,
  communication_bytes: null,
  latency_seconds: null,
  bandwidth: null,
  speedup: null,
  speedup_interval: null,
  speedup_verdict: null,
  compares_communication: false,
  data_share: 0,
  model_flops_utilization: null,
  energy_per_sample: null,
  final_loss: 0.1,
  predicted: null,
  shared_with: [],
  interruptions: [],
  is_baseline: true,
  ratio: null,
  ratio_interval: null,
  verdict: null,
};
const OTHER: BenchmarkRow = {
  ...ROW,
  trial: 2,
  strategy: "fsdp",
  samples_per_second: 200,
  is_baseline: false,
  ratio: 2,
  ratio_interval: [0.9, 3],
  verdict: "no_difference",
};
const FAILED: BenchmarkRow = { ...OTHER, trial: 3, samples_per_second: null, ratio: null };

function texts(row: BenchmarkRow): Record<string, string> {
  const columns = columnsOf([ROW, OTHER, FAILED], "samples_per_second");
  return Object.fromEntries(columns.map(({ title, text }) => [title, text(row)]));
}

it("jobs are compared with the baseline first, one of each combination", () => {
  const run = (number: number, jobId: string | null) => ({ number, job_id: jobId }) as Trial;
  const trials = [run(2, "b"), run(2, "c"), run(1, null), run(1, "a"), run(3, null)];
  expect(jobsAgainstBaseline([FAILED, OTHER, ROW], trials)).toEqual(["a", "b"]);
});

describe("columnsOf", () => {
  it("shows the cell, other fields and a dash where nothing was measured", () => {
    const shown = texts(ROW);
    expect(shown).toMatchObject({ strategy: "ddp", "samples/s": "100" });
    expect(shown).toMatchObject({ "vs baseline": "baseline", "comm.": "25 %" });
    for (const column of ["tokens/s", "MFU", "workers", "seed"])
      expect(shown).not.toHaveProperty(column);
    expect(commonText([ROW, OTHER])).toBe(
      "workers 2, precision fp32, batch 64, compression none, seed 3",
    );
    expect(texts(FAILED)).toMatchObject({ "samples/s": "—", "vs baseline": "—" });
  });

  it("says where no difference is shown", () => {
    const ratio = columnsOf([ROW], "samples_per_second").find(({ id }) => id === "ratio");
    expect(ratio?.text(OTHER)).toBe("2 ×");
    expect(ratio?.note?.(OTHER)).toBe("no difference shown (0.9 to 3)");
  });

  it("leaves out the comparison without a baseline", () => {
    const columns = columnsOf([OTHER], "loss");
    expect(columns.map(({ id }) => id)).not.toContain("ratio");
    expect(columns.map(({ title }) => title)).toContain("loss");
  });
});

it("communication has columns of what its rows differ in, and says where no difference is", () => {
  const sends: BenchmarkRow = {
    ...OTHER,
    communication_bytes: 2048,
    latency_seconds: 0.5,
    bandwidth: 4096,
    speedup: 2,
    speedup_interval: [1.5, 2.5],
    speedup_verdict: "better",
  };
  const same = { ...sends, speedup_verdict: "no_difference" } as const;
  const rows = [ROW, sends, same];
  const texts = rows.map((row) =>
    communicationColumns(rows).map(({ text, note }) =>
      [text(row), note?.(row) ?? ""].join(" ").trim(),
    ),
  );
  expect(texts).toEqual([
    ["ddp", "—", "—", "—", "baseline"],
    ["fsdp", "2.0 KiB", "4.0 KiB/s", "500 ms", "2 × 1.5 to 2.5"],
    ["fsdp", "2.0 KiB", "4.0 KiB/s", "500 ms", "2 × no difference shown (1.5 to 2.5)"],
  ]);
});

describe("sortedRows", () => {
  const columns = columnsOf([ROW, OTHER, FAILED], "samples_per_second");
  const order = (sort: string) =>
    sortedRows([FAILED, OTHER, ROW], columns, sort).map(({ trial }) => trial);

  it("sorts by a column, rows without a value last", () => {
    expect(order("samples_per_second")).toEqual([1, 2, 3]);
    expect(order("-samples_per_second")).toEqual([2, 1, 3]);
    expect(order("strategy")).toEqual([1, 3, 2]);
    expect(order("trial")).toEqual([3, 2, 1]);
  });
});
