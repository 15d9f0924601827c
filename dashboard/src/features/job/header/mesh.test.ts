import { describe, expect, it } from "vitest";
import { meshText, scheduleOf, syncOf } from "./mesh";

describe("meshText", () => {
  it.each<[Record<string, number>, string]>([
    [{ data: 1, shard: 1 }, ""],
    [{ data: 4, shard: 1, servers: 0 }, "data 4"],
    [{ data: 2, shard: 4 }, "data 2 × shard 4"],
    [{ data: 4, servers: 2 }, "data 4 + 2 servers"],
    [{ data: 1, servers: 1 }, "data 1 + 1 server"],
  ])("of %j", (sizes, mesh) => {
    expect(meshText(sizes)).toBe(mesh);
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
