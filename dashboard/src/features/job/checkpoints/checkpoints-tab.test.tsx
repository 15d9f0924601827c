import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it } from "vitest";
import type { Job } from "@/shared/api/types";
import { job } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { CheckpointsTab } from "./checkpoints-tab";

it("restores under the job's own strategy unless another is chosen", async () => {
  const checkpoint = {
    id: "91bc04d7e2aa",
    step: 120,
    attempt: 1,
    state: "committed",
    pinned: false,
    size: 1,
    created_at: "2026-01-01T00:00:00Z",
    metrics: {},
    refused_commands: {},
  };
  const planned = job({
    spec: { task: { name: "digits" }, parallelism: { strategy: "auto" } },
    refused_commands: {},
  });
  const asked = shown(<CheckpointsTab job={planned as unknown as Job} />, {
    "GET /checkpoints/jobs/3f2a9c51d07b": { items: [checkpoint], next_cursor: null },
    "POST /checkpoints/91bc04d7e2aa/restore": planned,
  });
  await userEvent.click(await screen.findByLabelText("Restore from step 120"));
  expect(screen.getByText("91bc04d7e2aa")).toBeVisible();
  expect(await screen.findByLabelText("Strategy", { selector: "input" })).toHaveValue(
    "auto: the fastest that fits",
  );
  await userEvent.click(screen.getByText("Restore", { selector: "[type=submit] *" }));
  const request = await waitFor(() => {
    const sent = asked.find(({ method }) => method === "POST");
    expect(sent).toBeDefined();
    return sent;
  });
  expect(await request?.json()).toEqual({});
});

it("explains how a script saves checkpoints, which has no interval of its own", async () => {
  const script = job({ spec: { script: { path: "/a.py" } } });
  shown(<CheckpointsTab job={script as unknown as Job} />, {
    "GET /checkpoints/jobs/3f2a9c51d07b": { items: [], next_cursor: null },
  });
  expect(await screen.findByText("trainhall.checkpoint.save")).toBeVisible();
  expect(screen.queryByText("checkpoint.every_steps")).toBeNull();
});

it("says that there are none yet only while there may be more", async () => {
  const none = { "GET /checkpoints/jobs/3f2a9c51d07b": { items: [], next_cursor: null } };
  const ended = job({ state: "failed", finished_at: "2026-01-01T00:01:00Z" });
  shown(<CheckpointsTab job={ended as unknown as Job} />, none);
  expect(await screen.findByRole("heading", { name: "No checkpoints" })).toBeVisible();
  shown(<CheckpointsTab job={job() as unknown as Job} />, none);
  expect(await screen.findByRole("heading", { name: "No checkpoints yet" })).toBeVisible();
});
