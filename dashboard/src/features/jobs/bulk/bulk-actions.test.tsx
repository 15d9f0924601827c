import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import type { Job } from "@/shared/api/types";
import { job, json, problem } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { BulkActions } from "./bulk-actions";
import { forEachJob } from "./for-each-job";

const jobs = [job({ id: "a", name: "one" }), job({ id: "b", name: "two" })] as unknown as Job[];
const onSelect = vi.fn();
const shownWith = (answers: Record<string, unknown>) =>
  shown(<BulkActions selected={["a", "b"]} jobs={jobs} onSelect={onSelect} />, answers);

it("jobs that refuse are listed with the reason, the others are commanded", async () => {
  const detail = "job two (b) cannot be paused: it is completed, which is final";
  const requests = shownWith({
    "PUT /training/jobs/a/pause": json(job(), 202),
    "PUT /training/jobs/b/pause": problem(409, "Not possible in the current state", detail),
  });
  await userEvent.click(screen.getByRole("button", { name: "Pause 2 jobs" }));
  const dialog = await screen.findByRole("dialog", { name: "1 of 2 jobs paused" });
  expect(
    within(dialog)
      .getAllByRole("listitem")
      .map(({ textContent }) => textContent),
  ).toEqual([`two${detail}`]);
  expect(requests.map(({ url }) => new URL(url).pathname.split("/").slice(-2).join("/"))).toEqual([
    "a/pause",
    "b/pause",
  ]);
});

it("jobs are cancelled after a question alone", async () => {
  const requests = shownWith({
    "DELETE /training/jobs/a": json(job(), 202),
    "DELETE /training/jobs/b": json(job(), 202),
  });
  await userEvent.click(screen.getByRole("button", { name: "Cancel 2 jobs…" }));
  expect(requests).toHaveLength(0);
  await userEvent.click(await screen.findByRole("button", { name: "Cancel 2 jobs" }));
  await vi.waitFor(() => expect(requests).toHaveLength(2));
});

it("jobs are tagged", async () => {
  const requests = shownWith({
    "PATCH /training/jobs/a": json(job()),
    "PATCH /training/jobs/b": json(job()),
  });
  await userEvent.click(screen.getByRole("button", { name: "Tag 2 jobs" }));
  await userEvent.type(await screen.findByLabelText("Tags to add", { selector: "input" }), "best,");
  await userEvent.click(screen.getByRole("button", { name: "Save tags" }));
  await vi.waitFor(() => expect(requests).toHaveLength(2));
  expect(await requests[1]?.json()).toEqual({ add_tags: ["best"], remove_tags: [] });
});

it("deleted jobs leave the selection, those that refuse stay in it", async () => {
  const detail = "“two” (b) cannot be deleted: it is running; cancel it first";
  const requests = shownWith({
    "DELETE /training/jobs/a/record": () => new Response(null, { status: 204 }),
    "DELETE /training/jobs/b/record": problem(409, "Not possible in the current state", detail),
  });
  await userEvent.click(screen.getByRole("button", { name: "Delete 2 jobs…" }));
  expect(requests).toHaveLength(0);
  await userEvent.click(await screen.findByRole("button", { name: "Delete 2 jobs" }));
  await screen.findByRole("dialog", { name: "1 of 2 jobs deleted" });
  expect(onSelect).toHaveBeenCalledWith(["b"]);
});

it("jobs are archived together", async () => {
  const requests = shownWith({
    "PATCH /training/jobs/a": json(job()),
    "PATCH /training/jobs/b": json(job()),
  });
  await userEvent.click(screen.getByRole("button", { name: "Archive 2 jobs" }));
  await vi.waitFor(() => expect(onSelect).toHaveBeenCalledWith([]));
  expect(await requests[1]?.json()).toEqual({ archived: true });
});

it("a few commands are under way at a time", async () => {
  let running = 0;
  let most = 0;
  const ids = Array.from({ length: 20 }, (_, i) => `${i}`);
  const outcome = await forEachJob(ids, async (id) => {
    running += 1;
    most = Math.max(most, running);
    await Promise.resolve();
    running -= 1;
    if (id === "7") throw new Error("no");
  });
  expect(most).toBeLessThanOrEqual(6);
  expect(outcome.refused).toEqual([{ id: "7", why: "no" }]);
  expect(outcome.done).toHaveLength(19);
});
