import { MantineProvider } from "@mantine/core";
import { render, screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Plan } from "@/client";
import { PlanCard } from "./plan-card";

const PLAN: Plan = {
  summary: "fsdp (shard 8)",
  parallelism: { strategy: "fsdp", shard: 8 },
  reason: "fsdp (shard 8) has the shortest step, 0.89 s, and needs 61.1 GiB of 80.0 GiB",
  assumed: "H100: 40% of 989 TFLOP/s",
  device: "H100",
  attempt: 1,
  world_size: 8,
  prediction: {
    peak_memory_bytes: 61 * 2 ** 30,
    memory: {},
    step_seconds: 0.89,
    bubble_fraction: 0,
    communication_bytes: 0,
    memory_limit: 80 * 2 ** 30,
    smaller: [],
  },
  calibration: { memory: 1, time: 1, runs: 0 },
  is_named: false,
  measured: null,
  error: null,
};

function shown(plan: Plan) {
  render(
    <MantineProvider>
      <PlanCard plan={plan} />
    </MantineProvider>,
  );
  return within(screen.getByRole("region", { name: "Plan" }));
}

it("a plan shows its reason, and that nothing was measured yet", () => {
  const card = shown(PLAN);
  expect(card.getByText(/has the shortest step, 0.89 s/)).toBeVisible();
  expect(card.getByRole("row", { name: /Step time 0.89 s — —/ })).toBeVisible();
});

it("a measurement is shown beside the prediction, with the error", () => {
  const card = shown({
    ...PLAN,
    measured: {
      peak_memory_bytes: 58 * 2 ** 30,
      step_seconds: 1.1,
      steps: 40,
      communication_bytes: null,
      attempt: 1,
    },
    error: { peak_memory_bytes: -0.049, step_seconds: 0.236 },
  });
  expect(card.getByRole("row", { name: /Step time 0.89 s 1.1 s \+24 %/ })).toBeVisible();
  expect(card.getByRole("row", { name: /Peak memory per device .* −5 %/ })).toBeVisible();
});

it("the memory of a process on a CPU is not compared with that of tensors", () => {
  const card = shown({
    ...PLAN,
    measured: {
      peak_memory_bytes: null,
      step_seconds: 1.1,
      steps: 40,
      communication_bytes: 4096,
      attempt: 1,
    },
    error: { peak_memory_bytes: null, step_seconds: 0.236 },
  });
  expect(card.getByRole("row", { name: /Peak memory per device .* only on GPUs —/ })).toBeVisible();
});
