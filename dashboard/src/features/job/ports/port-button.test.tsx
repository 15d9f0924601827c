import { screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";
import type { Job } from "@/shared/api/types";
import { job, json, problem } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { PortButton } from "./port-button";

const LINK = "POST /training/jobs/3f2a9c51d07b/ports/6006/link";
const URL = "http://3f2a9c51d07b-6006.fwd.example.org/.trainhall/open?link=x";

afterEach(() => vi.restoreAllMocks());

function tabOf() {
  const tab = { opener: window as unknown, location: { replace: vi.fn() }, close: vi.fn() };
  vi.spyOn(window, "open").mockReturnValue(tab as unknown as Window);
  return tab;
}

async function openPort(answer: unknown) {
  shown(<PortButton job={job() as unknown as Job} />, { [LINK]: answer });
  await userEvent.click(screen.getByRole("button", { name: "Open port" }));
  const field = await screen.findByLabelText("Port");
  await userEvent.clear(field);
  await userEvent.type(field, "6006");
  const buttons = screen.getAllByRole("button", { name: "Open port" });
  await userEvent.click(buttons[buttons.length - 1] as HTMLElement);
}

it("opens a port in a tab that cannot reach the page", async () => {
  const tab = tabOf();
  await openPort(json({ url: URL, expires_in: 60 }, 201));
  await vi.waitFor(() => expect(tab.location.replace).toHaveBeenCalledWith(URL));
  expect(tab.opener).toBe(null);
  await vi.waitFor(() => expect(screen.queryByRole("dialog")).toBe(null));
});

it("says what to do where the coordinator has no domain", async () => {
  const tab = tabOf();
  await openPort(problem(409, "Conflict", "start it with --forward-domain"));
  expect(await screen.findByText(/--forward-domain/)).toBeInTheDocument();
  expect(screen.getByText("trainhall forward 3f2a9c51d07b 6006")).toBeInTheDocument();
  expect(tab.close).toHaveBeenCalled();
});

it("is not offered to whoever may not run commands", () => {
  shown(<PortButton job={job({ allowed_commands: ["stacks"] }) as unknown as Job} />, {});
  expect(screen.queryByRole("button")).toBe(null);
});
