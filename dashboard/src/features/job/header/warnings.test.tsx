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

it("warnings begin with the straggler", () => {
  const unsaved = "the checkpoint of step 20 was not saved: OSError: no space";
  const straggler = { rank: 1, ratio: 1.5, node: "alpha" };
  expect(shown({ warnings: [unsaved], straggler })).toEqual([
    "rank 1 on alpha lags behind: 1.50 × the median step time",
    unsaved,
  ]);
});

it("a healthy job has no warnings", () => {
  expect(shown({})).toEqual([]);
});
