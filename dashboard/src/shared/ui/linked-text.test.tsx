import { MantineProvider } from "@mantine/core";
import {
  createMemoryHistory,
  createRootRoute,
  createRouter,
  RouterContextProvider,
} from "@tanstack/react-router";
import { render, screen } from "@testing-library/react";
import { expect, it, vi } from "vitest";
import { moment } from "@/shared/format";
import { LinkedText } from "./linked-text";

function shown(text: string): HTMLElement {
  const router = createRouter({
    routeTree: createRootRoute(),
    history: createMemoryHistory(),
  });
  return render(
    <RouterContextProvider router={router}>
      <MantineProvider env="test">
        <p>
          <LinkedText text={text} />
        </p>
      </MantineProvider>
    </RouterContextProvider>,
  ).container;
}

it("jobs are links and commands are code", () => {
  const { textContent } = shown(
    "job 0123456789ab holds 4, job 11 none: add a node with `trainhall nodes add`, or wait",
  );
  expect(textContent).toContain(
    "job 0123456789ab holds 4, job 11 none: add a node with trainhall nodes add, or wait",
  );
  expect(screen.getByRole("link")).toHaveAttribute("href", "/jobs/0123456789ab");
  expect(screen.getByText("trainhall nodes add").tagName).toBe("CODE");
});

it("a job with a name is shown by its name, with the id in the link", () => {
  const { textContent } = shown(
    "waiting for “sweep (2)” (0123456789ab, 8 GPUs), ahead in the queue; “gpt” (ba9876543210) holds 2",
  );
  expect(textContent).toContain(
    "waiting for “sweep (2)” (8 GPUs), ahead in the queue; “gpt” holds 2",
  );
  expect(screen.getByRole("link", { name: "gpt" })).toHaveAttribute("href", "/jobs/ba9876543210");
});

it("an experiment is shown by its name, with the id in the link", () => {
  const { textContent } = shown("cancelled by a user with “rates” (experiment 208488b2c7ad)");
  expect(textContent).toContain("cancelled by a user with “rates”");
  const link = screen.getByRole("link", { name: "rates" });
  expect(link).toHaveAttribute("href", "/experiments/208488b2c7ad");
});

it("plain text stays as it is", () => {
  expect(shown("waits for its turn").textContent).toContain("waits for its turn");
});

it("times are local, of today or of the nearest year that has the day", () => {
  vi.useFakeTimers({ now: new Date("2026-12-31T12:00:00Z"), toFake: ["Date"] });
  shown("suspect since 10:20:31 UTC; ends by 00:05 UTC on Jan 03");
  expect(screen.getByText(moment("2026-12-31T10:20:31Z"))).toBeVisible();
  expect(screen.getByText(moment("2027-01-03T00:05:00Z", "minutes"))).toBeVisible();
  vi.useRealTimers();
});
