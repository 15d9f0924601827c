import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, vi } from "vitest";
import type { Job } from "@/shared/api/types";
import { job, json, problem } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { ResizeButton } from "./resize-button";

const RESIZE = "PUT /training/jobs/3f2a9c51d07b/resize";
const ELASTIC = { resources: { min_workers: 2, max_workers: 4 }, task: { name: "digits" } };

const shownFor = (change: Record<string, unknown>, answers: Record<string, unknown> = {}) =>
  shown(<ResizeButton job={job(change) as unknown as Job} />, answers);

const button = () => screen.getByRole("button", { name: "Resize" });

async function fill(label: string, text: string): Promise<void> {
  const field = await screen.findByLabelText(label);
  await userEvent.clear(field);
  if (text !== "") await userEvent.type(field, text);
}

describe("a job is resized", () => {
  it("from the range of its spec, to another one", async () => {
    const requests = shownFor({ spec: ELASTIC }, { [RESIZE]: json(job(), 202) });
    await userEvent.click(button());
    expect(await screen.findByLabelText("Min workers")).toHaveValue("2");
    expect(screen.getByLabelText("Max workers")).toHaveValue("4");
    expect(screen.getByText(/requests 2 to 4 workers/)).toBeVisible();
    const send = screen.getByRole("button", { name: "Resize job" });
    expect(send).toBeDisabled();
    await fill("Max workers", "8");
    await userEvent.click(send);
    await vi.waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    const sent = requests.filter(({ method }) => method === "PUT");
    expect(await sent[0]?.json()).toEqual({ min_workers: 2, max_workers: 8 });
  });

  it("to a fixed number, given twice", async () => {
    const requests = shownFor({ spec: ELASTIC }, { [RESIZE]: json(job(), 202) });
    await userEvent.click(button());
    await fill("Min workers", "4");
    expect(screen.getByText(/^Fixed\./)).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: "Resize job" }));
    await vi.waitFor(() => expect(requests.some(({ method }) => method === "PUT")).toBe(true));
    expect(await requests.find(({ method }) => method === "PUT")?.json()).toEqual({ workers: 4 });
  });

  it("to fewer workers by max workers alone", async () => {
    shownFor({ spec: ELASTIC });
    await userEvent.click(button());
    await fill("Max workers", "1");
    expect(screen.getByLabelText("Min workers")).toHaveValue("1");
    expect(screen.getByRole("button", { name: "Resize job" })).toBeEnabled();
    // "1" was the beginning of a larger number.
    await userEvent.type(screen.getByLabelText("Max workers"), "6");
    expect(screen.getByLabelText("Min workers")).toHaveValue("2");
  });

  it("only to a valid range", async () => {
    shownFor({ spec: ELASTIC });
    await userEvent.click(button());
    for (const wrong of ["5", ""]) {
      await fill("Min workers", wrong);
      expect(screen.getByRole("button", { name: "Resize job" })).toBeDisabled();
      expect(screen.getByText(/^Min workers must be at least 1/)).toBeVisible();
    }
  });

  it("unless the server refuses, with the reason in the dialog", async () => {
    const detail = "training.global_batch_size: must divide by 3 workers";
    shownFor({ spec: ELASTIC }, { [RESIZE]: problem(422, "Invalid job spec", detail) });
    await userEvent.click(button());
    await fill("Max workers", "3");
    await userEvent.click(screen.getByRole("button", { name: "Resize job" }));
    expect(await screen.findByRole("alert")).toHaveTextContent(detail);
    expect(screen.getByLabelText("Max workers")).toHaveValue("3");
  });

  it("not when the server refuses it, with the reason", async () => {
    const reason = "It is completed; restore one of its checkpoints with other resources instead.";
    shownFor({ state: "completed", refused_commands: { resize: reason } });
    expect(button()).toHaveAttribute("aria-disabled", "true");
    expect(button()).toHaveAccessibleDescription(reason);
    await userEvent.click(button());
    expect(screen.queryByRole("dialog")).toBeNull();
  });

  it("while it is queued, for when it starts", async () => {
    shownFor({ state: "queued", attempt: 0, spec: { resources: { workers: 2 } } });
    await userEvent.click(button());
    expect(
      await screen.findByText(/requests 2 workers. The new number applies when it starts/),
    ).toBeVisible();
  });
});
