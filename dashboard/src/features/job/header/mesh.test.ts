import { describe, expect, it } from "vitest";
import type { ParallelismSpec } from "@/client";
import { meshOf, scheduleOf, syncOf } from "./mesh";

describe("meshOf", () => {
  it.each<[ParallelismSpec, number, string]>([
    [{ strategy: "ddp" }, 1, ""],
    [{ strategy: "ddp" }, 4, "data 4"],
    [{ strategy: "fsdp", data: 2, tensor: null }, 8, "data 2 × shard 4"],
    [{ strategy: "tensor", tensor: 2, data: 2 }, 4, "data 2 × tensor 2"],
    [{ strategy: "pipeline", data: 2 }, 8, "data 2 × pipeline 4"],
    [{ strategy: "parameter_server", servers: 2 }, 6, "data 4 + 2 servers"],
  ])("of %j on %i workers", (parallelism, workers, mesh) => {
    expect(meshOf(parallelism, workers)).toBe(mesh);
  });
});

it("a schedule and a gradient sync that are not the default are shown", () => {
  expect(scheduleOf({ strategy: "pipeline", schedule: "1f1b", microbatches: 8 })).toBe(
    "1f1b, 8 micro-batches",
  );
  expect(scheduleOf({ strategy: "ddp", schedule: "1f1b" })).toBe("");
  expect(syncOf({ gradient_sync: { algorithm: "ring", compression: "bf16" } })).toBe(
    "gradient sync ring, bf16",
  );
  expect(syncOf({ gradient_sync: { algorithm: "native", compression: "none" } })).toBe("");
});
