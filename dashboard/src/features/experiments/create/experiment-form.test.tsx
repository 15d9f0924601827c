import { MantineProvider } from "@mantine/core";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import type { FieldProblem } from "@/shared/api/problem";
import { EXAMPLES } from "./examples";
import { ExperimentForm } from "./experiment-form";

const TEXT = `name: mine
kind: sweep
job: {name: digits, task: {name: digits}}
space: {training.seed: [1, 2, 3]}
method: grid
objective: {metric: loss}
`;

function show(problems: FieldProblem[] = [], text = TEXT) {
  const onChange = vi.fn();
  render(
    <MantineProvider env="test">
      <ExperimentForm text={text} onChange={onChange} problems={problems} examples={EXAMPLES} />
    </MantineProvider>,
  );
  return onChange;
}

test("fields that are wrong say why", () => {
  show([
    { field: "objective.metric", message: "must not be empty" },
    { field: "space.training.seed.range", message: "must be two numbers" },
  ]);
  const metric = screen.getByDisplayValue("loss");
  expect(metric).toBeInvalid();
  expect(metric).toHaveAccessibleDescription(/must not be empty/);
  expect(screen.getByDisplayValue("training.seed")).toBeInvalid();
  expect(screen.getByText("must be two numbers")).toBeVisible();
  expect(screen.getByDisplayValue("mine")).toBeValid();
});

test("another method begins with at most as many trials as there are combinations", () => {
  const onChange = show();
  fireEvent.click(screen.getByText("Random"));
  expect(onChange).toHaveBeenLastCalledWith(expect.stringContaining("trials: 3"));
});

test("a benchmark has its matrix, and the baseline that it is compared with", async () => {
  const onChange = show();
  fireEvent.click(screen.getByText("Benchmark"));
  const benchmark = onChange.mock.lastCall?.[0];
  expect(benchmark).toContain("kind: benchmark");
  expect(benchmark).not.toContain("objective");
  cleanup();
  const onAxis = show([], benchmark);
  const workers = screen.getByLabelText("Workers", { selector: "input" });
  await userEvent.type(workers, "4{enter}");
  expect(onAxis).toHaveBeenLastCalledWith(expect.stringContaining("resources.workers: [4]"));
});
