import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { job, problem } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { StacksButton } from "./stacks-button";

const TAKE = "POST /training/jobs/3f2a9c51d07b/stacks";

const shownFor = (change: Record<string, unknown>, answers: Record<string, unknown> = {}) =>
  shown(<StacksButton job={job(change) as unknown as Job} />, answers);

const open = () => userEvent.click(screen.getByRole("button", { name: "Stacks" }));

it("shows the stacks of every rank, and newer ones on demand", async () => {
  let taken = 0;
  const items = () => [
    { rank: 0, node: "gpu-01", pid: 4711, text: `File "train.py", line ${taken}` },
    { rank: 1, node: "gpu-02", pid: null, text: "not available: the rank does not run" },
  ];
  const answer = () => {
    taken += 1;
    return { attempt: 1, items: items() };
  };
  shownFor({}, { [TAKE]: answer });
  await open();
  const first = await screen.findByRole("region", { name: "Rank 0" });
  expect(within(first).getByText("Rank 0 · gpu-01 · process 4711")).toBeVisible();
  expect(within(first).getByText('File "train.py", line 1')).toBeVisible();
  expect(screen.getByText(/^not available/)).toBeVisible();
  await userEvent.click(screen.getByRole("button", { name: "Refresh stacks" }));
  expect(await screen.findByText('File "train.py", line 2')).toBeVisible();
});

it("copies the stacks of all ranks with their names", async () => {
  const user = userEvent.setup();
  const items = [{ rank: 0, node: "gpu-01", pid: 7, text: "waits" }];
  shownFor({}, { [TAKE]: { attempt: 1, items } });
  await user.click(screen.getByRole("button", { name: "Stacks" }));
  await user.click(await screen.findByRole("button", { name: "Copy all" }));
  expect(await navigator.clipboard.readText()).toBe("Rank 0 · gpu-01 · process 7\nwaits");
});

it("says why there are none", async () => {
  shownFor({}, { [TAKE]: problem(409, "Not possible", "it is paused, and has no processes") });
  await open();
  expect(await screen.findByRole("alert")).toHaveTextContent("has no processes");
});

it("is refused without processes", async () => {
  const reason = "It is queued, and has no processes.";
  shownFor({ state: "queued", refused_commands: { stacks: reason } });
  expect(screen.getByRole("button", { name: "Stacks" })).toHaveAccessibleDescription(reason);
  await open();
  expect(screen.queryByRole("dialog")).toBeNull();
});
