import { MantineProvider } from "@mantine/core";
import {
  createMemoryHistory,
  createRootRoute,
  createRouter,
  RouterContextProvider,
} from "@tanstack/react-router";
import { render, screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { Told } from "./told";

function shown(text: string): HTMLElement {
  const router = createRouter({
    routeTree: createRootRoute(),
    history: createMemoryHistory(),
  });
  return render(
    <RouterContextProvider router={router}>
      <MantineProvider env="test">
        <p>
          <Told text={text} />
        </p>
      </MantineProvider>
    </RouterContextProvider>,
  ).container;
}

it("jobs are links, commands are code, and every word stays", () => {
  const { textContent } = shown(
    "job 0123456789ab holds 4, job 11 none: add a node with `trainhall nodes add`, or wait",
  );
  expect(textContent).toContain(
    "job 0123456789ab holds 4, job 11 none: add a node with trainhall nodes add, or wait",
  );
  expect(screen.getByRole("link")).toHaveAttribute("href", "/jobs/0123456789ab");
  expect(screen.getByText("trainhall nodes add").tagName).toBe("CODE");
});

it("a text of nothing but words is told as it is", () => {
  expect(shown("waits for its turn").textContent).toContain("waits for its turn");
});
