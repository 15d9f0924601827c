import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import type { FieldProblem } from "@/shared/api/problem";
import { SweepForm } from "./sweep-form";

const TEXT = `name: mine
kind: sweep
job: {name: digits, task: {name: digits}}
space: {training.seed: [1, 2, 3]}
method: grid
objective: {metric: loss}
`;

function show(problems: FieldProblem[] = []) {
  const onChange = vi.fn();
  render(
    <MantineProvider env="test">
      <SweepForm text={TEXT} onChange={onChange} problems={problems} />
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
