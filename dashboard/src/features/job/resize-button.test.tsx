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
    const asked = shownFor({ spec: ELASTIC }, { [RESIZE]: json(job(), 202) });
    await userEvent.click(button());
    expect(await screen.findByLabelText("At least")).toHaveValue("2");
    expect(screen.getByLabelText("At most")).toHaveValue("4");
    expect(screen.getByText(/asks for 2 to 4 workers/)).toBeVisible();
    const send = screen.getByRole("button", { name: "Resize the job" });
    expect(send).toBeDisabled();
    await fill("At most", "8");
    await userEvent.click(send);
    await vi.waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
    const sent = asked.filter(({ method }) => method === "PUT");
    expect(await sent[0]?.json()).toEqual({ min_workers: 2, max_workers: 8 });
  });

  it("to a fixed number, which two equal ones are", async () => {
    const asked = shownFor({ spec: ELASTIC }, { [RESIZE]: json(job(), 202) });
    await userEvent.click(button());
    await fill("At least", "4");
    expect(screen.getByText(/^A fixed number/)).toBeVisible();
    await userEvent.click(screen.getByRole("button", { name: "Resize the job" }));
    await vi.waitFor(() => expect(asked.some(({ method }) => method === "PUT")).toBe(true));
    expect(await asked.find(({ method }) => method === "PUT")?.json()).toEqual({ workers: 4 });
  });

  it("only to what is a range", async () => {
    shownFor({ spec: ELASTIC });
    await userEvent.click(button());
    for (const wrong of ["5", ""]) {
      await fill("At least", wrong);
      expect(screen.getByRole("button", { name: "Resize the job" })).toBeDisabled();
      expect(screen.getByText(/^“At least” has to be 1 or more/)).toBeVisible();
    }
  });

  it("unless it cannot have that number, which is told where it was asked for", async () => {
    const detail = "training.global_batch_size: must divide by 3 workers";
    shownFor({ spec: ELASTIC }, { [RESIZE]: problem(422, "The job spec is not valid", detail) });
    await userEvent.click(button());
    await fill("At most", "3");
    await userEvent.click(screen.getByRole("button", { name: "Resize the job" }));
    expect(await screen.findByRole("alert")).toHaveTextContent(detail);
    expect(screen.getByLabelText("At most")).toHaveValue("3");
  });

  it.each([
    ["completed", "It is completed; restore one of its checkpoints with another number of workers"],
    ["failed", "It is failed; restore one"],
    ["cancelling", "It is being cancelled"],
  ])("not once it is %s, with the reason", async (state, why) => {
    shownFor({ state });
    expect(button()).toHaveAttribute("aria-disabled", "true");
    expect(button()).toHaveAccessibleDescription(expect.stringContaining(why));
    await userEvent.click(button());
    expect(screen.queryByRole("dialog")).toBeNull();
  });

  it("while it waits, and starts with the new number", async () => {
    shownFor({ state: "queued", attempt: 0, spec: { resources: { workers: 2 } } });
    await userEvent.click(button());
    expect(await screen.findByText(/asks for 2 workers. It starts with the new/)).toBeVisible();
  });
});
