import { gzipSync } from "node:zlib";
import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, it, vi } from "vitest";
import { pollMs } from "@/features/job/api/profiles";
import type { Job } from "@/shared/api/types";
import { job, json, problem } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { ProfilesTab } from "./profiles-tab";

const LIST = "GET /training/jobs/3f2a9c51d07b/profiles";
const ASK = "POST /training/jobs/3f2a9c51d07b/profile";
const FILE = "GET /outputs/jobs/3f2a9c51d07b/files/profiles/1/rank-3.json.gz";
const TRACE = {
  rank: 3,
  path: "profiles/1/rank-3.json.gz",
  size: 2048,
  first_step: 41,
  last_step: 60,
  stall_seconds: 0.125,
  note: "",
};
const PROFILE = {
  id: 1,
  attempt: 1,
  state: "completed",
  reason: null,
  steps: 20,
  ranks: [0, 3],
  stacks: true,
  memory: false,
  asked_by: "maria",
  asked_at: "2026-01-01T00:00:00Z",
  first_step: 41,
  ended_at: "2026-01-01T00:00:09Z",
  traces: [TRACE],
  problems: [{ rank: 0, message: "the disk is full" }],
};

const show = (answers: Record<string, unknown>, change: Record<string, unknown> = {}) =>
  shown(<ProfilesTab job={job(change) as unknown as Job} />, answers);

it("lists profiles with their traces and what went wrong", async () => {
  show({ [LIST]: { items: [PROFILE] } });
  const card = await screen.findByRole("region", { name: "Profile 1" });
  const link = within(card).getByRole("link", { name: "Download rank 3" });
  expect(link).toHaveAttribute(
    "href",
    "/api/v1/outputs/jobs/3f2a9c51d07b/files/profiles/1/rank-3.json.gz",
  );
  expect(card).toHaveTextContent("20 steps of 2 ranks · from step 41 · Python calls");
  expect(card).toHaveTextContent("Rank 0: the disk is full");
});

it("links no trace that has not arrived", async () => {
  show({ [LIST]: { items: [{ ...PROFILE, traces: [{ ...TRACE, size: null }] }] } });
  expect(await screen.findByText(/Rank 3: on its way/)).toBeVisible();
  expect(screen.queryByRole("link")).toBeNull();
});

it("reads on until the traces of a job that ended are there", () => {
  const ended = { running_since: null };
  const sent = { state: "completed" as const, traces: [TRACE] };
  expect(pollMs(ended, [{ ...sent, traces: [{ ...TRACE, size: null }] }])).toBeGreaterThan(0);
  expect(pollMs(ended, [sent])).toBe(false);
});

it("opens a trace in a frame of speedscope", async () => {
  const blobs: Blob[] = [];
  URL.createObjectURL = (blob) => `blob:http://localhost/${blobs.push(blob as Blob)}`;
  URL.revokeObjectURL = vi.fn();
  const events = [{ ph: "X", name: "aten::mm", pid: 1, tid: 1, ts: 5, dur: 2 }];
  const packed = gzipSync(JSON.stringify({ traceEvents: events }));
  show({
    [LIST]: { items: [PROFILE] },
    [FILE]: () => new Response(new Uint8Array(packed)),
  });
  await userEvent.click(await screen.findByRole("button", { name: "Open rank 3" }));
  const dialog = await screen.findByRole("dialog", { name: "digits · rank 3 · steps 41 to 60" });
  const frame = await within(dialog).findByTitle("Trace in speedscope");
  const blob = "blob%3Ahttp%3A%2F%2Flocalhost%2F1";
  expect(frame).toHaveAttribute("src", `/speedscope/index.html#profileURL=${blob}`);
  expect(JSON.parse((await blobs[0]?.text()) ?? "").shared.frames).toEqual([{ name: "aten::mm" }]);
  await userEvent.click(within(dialog).getByRole("button", { name: "Close the trace" }));
  await vi.waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(URL.revokeObjectURL).toHaveBeenCalledWith("blob:http://localhost/1");
});

it("shows why a trace cannot be opened", async () => {
  show({ [LIST]: { items: [PROFILE] }, [FILE]: problem(404, "Not found", "no such output") });
  await userEvent.click(await screen.findByRole("button", { name: "Open rank 3" }));
  expect(await screen.findByRole("alert")).toHaveTextContent("no such output");
});

it("asks for a profile of some ranks", async () => {
  const asked = show({ [LIST]: { items: [] }, [ASK]: json(PROFILE, 202) });
  await userEvent.click(await screen.findByRole("button", { name: "Profile steps" }));
  await userEvent.type(await screen.findByLabelText("Ranks"), "1,x");
  const send = within(screen.getByRole("dialog")).getByRole("button", { name: "Profile steps" });
  expect(send).toBeDisabled();
  await userEvent.type(screen.getByLabelText("Ranks"), "{Backspace}0");
  await userEvent.click(screen.getByLabelText("Allocations of tensors"));
  await userEvent.click(send);
  await vi.waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  const sent = asked.find(({ method }) => method === "POST");
  expect(await sent?.json()).toEqual({ steps: 20, ranks: [1, 0], stacks: false, memory: true });
});

it("shows why a profile is refused", async () => {
  const why = "its script has not called trainhall.should_stop()";
  show({ [LIST]: { items: [] }, [ASK]: problem(409, "Conflict", why) });
  await userEvent.click(await screen.findByRole("button", { name: "Profile steps" }));
  const dialog = await screen.findByRole("dialog");
  await userEvent.click(within(dialog).getByRole("button", { name: "Profile steps" }));
  expect(await within(dialog).findByRole("alert")).toHaveTextContent(why);
});
