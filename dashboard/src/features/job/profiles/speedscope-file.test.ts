import { expect, it } from "vitest";
import { toSpeedscope } from "./speedscope-file";

const call = (name: string, ts: number, dur: number, tid = 7) => ({
  ph: "X", cat: "cpu_op", name, pid: 1, tid, ts, dur, args: { "External id": ts },
}); // biome-ignore format: one call a line
const named = (name: string, args: object, tid = 7) => ({
  ph: "M",
  name,
  pid: 1,
  tid,
  ts: 0,
  args,
});

/** "(" and ")" with the name of the call, in the order of the first thread. */
function nesting(...events: object[]): string {
  const { shared, profiles } = toSpeedscope({ traceEvents: events }, "x");
  return (profiles[0]?.events ?? [])
    .map(({ type, frame, at }) => `${type}${shared.frames[frame]?.name}@${at}`)
    .join(" ");
}

it("nests calls, and names all calls of an operator alike", () => {
  expect(nesting(call("mm", 112, 3), call("linear", 110, 10), call("mm", 116, 4))).toBe(
    "Olinear@0 Omm@2 Cmm@5 Omm@6 Cmm@10 Clinear@10",
  );
});

it("keeps the larger part of a call that overlaps another", () => {
  expect(nesting(call("enter", 100, 10), call("step", 108, 42), call("exit", 145, 6))).toBe(
    "Oenter@0 Center@10 Ostep@10 Oexit@45 Cexit@50 Cstep@50",
  );
});

it("keeps calls of no duration", () => {
  expect(nesting(call("a", 100, 10), call("b", 100, 0), call("c", 110, 0))).toBe(
    "Oa@0 Ob@0 Cb@0 Ca@10 Oc@10 Cc@10",
  );
});

it("lists threads by name, the one with most calls first", () => {
  const { profiles, name } = toSpeedscope(
    {
      traceEvents: [
        named("process_labels", { labels: "GPU 0" }),
        named("thread_name", { name: "stream 7 " }),
        { ...call("PyTorch Profiler (0)", 0, 900, 1), cat: "Trace" },
        { ...call("flow", 100, 1), ph: "s" },
        call("kernel", 100, 5),
        call("a", 104, 1, 8),
        call("b", 106, 1, 8),
      ],
    },
    "digits",
  );
  expect(name).toBe("digits");
  expect(profiles.map((each) => each.name)).toEqual(["1/8 · 2 calls", "GPU 0, stream 7 · 1 call"]);
  expect(profiles.map(({ startValue, endValue }) => [startValue, endValue])).toEqual([
    [0, 7],
    [0, 7],
  ]);
});

it("refuses what is no trace", () => {
  for (const other of [null, [], { detail: "Not found" }, { traceEvents: 1 }])
    expect(() => toSpeedscope(other, "x")).toThrow("no Chrome trace");
  const broken = [call("a", Number.NaN, 1), call("a", 1, -1), { ph: "X" }, null];
  expect(() => toSpeedscope({ traceEvents: broken }, "x")).toThrow("no calls");
});
