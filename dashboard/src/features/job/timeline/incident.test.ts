import { expect, it } from "vitest";
import { causeOf, type Incident, stagesOf } from "./incident";

const INCIDENT: Incident = {
  generation: 1,
  failure: { message: "rank 1 was ended by SIGKILL", cause: "out_of_memory" },
  is_move: false,
  done: "attempt 2 replaced it",
  happened_at: "2026-01-01T00:00:00Z",
  detected_at: "2026-01-01T00:00:01Z",
  regrouped_at: null,
  loaded_at: null,
  stepped_at: null,
  steps_redone: null,
  detect_seconds: 1,
  regroup_seconds: null,
  load_seconds: null,
  step_seconds: null,
  total_seconds: null,
  times: "detected in 1 s",
};

it("has the known stages in order", () => {
  expect(stagesOf(INCIDENT).map(({ label }) => label)).toEqual(["Detected in"]);
  const over = {
    ...INCIDENT,
    regroup_seconds: 2,
    load_seconds: 3,
    step_seconds: 1,
    steps_redone: 1,
  };
  expect(stagesOf(over).map(({ label }) => label)).toEqual([
    "Detected in",
    "Regrouped in",
    "Loaded in",
    "Next step after",
    "Steps repeated",
  ]);
  expect(stagesOf({ ...over, steps_redone: 12 }).at(-1)).toEqual({
    label: "Steps repeated",
    text: "12",
  });
});

it("shows causes as words", () => {
  expect(causeOf(INCIDENT.failure)).toBe("out of memory");
  expect(causeOf({ message: "x" })).toBe("unknown");
});
