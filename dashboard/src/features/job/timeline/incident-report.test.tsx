import { MantineProvider } from "@mantine/core";
import { render, screen, within } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { job } from "@/test/fake-api";
import type { Incident } from "./incident";
import { IncidentReport } from "./incident-report";

const lost = {
  generation: 1,
  failure: {
    message: "node gpu-07 is lost",
    cause: "node_lost",
    node: "gpu-07",
    rank: null,
    step: 120,
    log_tail: "\u001b[31mits last words\u001b[0m\n",
  },
  is_move: false,
  done: "attempt 2 replaced it",
  happened_at: null,
  detect_seconds: 125,
  regroup_seconds: null,
  load_seconds: null,
  step_seconds: null,
  total_seconds: null,
  steps_redone: 1,
} as unknown as Incident;

function show(incident: Incident): void {
  render(
    <MantineProvider>
      <IncidentReport job={job() as unknown as Job} attempt={1} incident={incident} />
    </MantineProvider>,
  );
}

it("a failure is reported with its cause and recovery", () => {
  show(lost);
  const name = "Failure of attempt 1, generation 1: node lost";
  const report = within(screen.getByRole("region", { name }));
  expect(report.getByText("node gpu-07 is lost")).toBeVisible();
  expect(report.getByText(/attempt 2 replaced it · failed after step 120/)).toBeVisible();
  expect(report.getByText("Detected in").nextElementSibling).toHaveTextContent(/^2\s?m/);
  expect(report.getByText("Steps repeated").nextElementSibling).toHaveTextContent("1");
  expect(report.getByText("its last words")).toBeVisible();
  expect(report.queryByRole("link")).toBeNull();
});

it("an output that its message quotes is not shown again", () => {
  const message = "rank 0 exited with code 3: its last words";
  show({ ...lost, failure: { ...lost.failure, message } });
  expect(screen.getAllByText(/its last words/)).toHaveLength(1);
});

it.each(["preempted", "resized"] as const)("a %s attempt has not failed", (cause) => {
  show({ ...lost, is_move: true, failure: { ...lost.failure, cause } });
  expect(screen.getByText(cause)).toBeVisible();
  expect(screen.getByText(/stopped after step 120/)).toBeVisible();
});
