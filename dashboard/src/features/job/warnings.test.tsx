import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { job } from "@/test/fake-api";
import { Warnings } from "./warnings";

function shown(change: Partial<Job>) {
  render(
    <MantineProvider>
      <Warnings job={job(change) as Job} />
    </MantineProvider>,
  );
  return screen.queryAllByTestId("warning").map((line) => line.textContent);
}

it("a job says what a person should look at, the slow rank first", () => {
  const unsaved = "the checkpoint of step 20 was not saved: OSError: no space";
  const straggler = { rank: 1, ratio: 1.5, node: "alpha" };
  expect(shown({ warnings: [unsaved], straggler })).toEqual([
    "rank 1 on alpha is slow: 1.50 × the median time for a step",
    unsaved,
  ]);
});

it("a job that is well says nothing", () => {
  expect(shown({})).toEqual([]);
});
