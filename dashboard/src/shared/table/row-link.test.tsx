import {
  createMemoryHistory,
  createRootRoute,
  createRouter,
  linkOptions,
  RouterContextProvider,
} from "@tanstack/react-router";
import { createEvent, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { expect, it } from "vitest";
import { RowLink } from "./row-link";

const LINK = linkOptions({ to: "/jobs/$jobId", params: { jobId: "b2" } });

function shown() {
  const router = createRouter({ routeTree: createRootRoute(), history: createMemoryHistory() });
  render(
    <RouterContextProvider router={router}>
      <RowLink link={LINK}>digits</RowLink>
    </RouterContextProvider>,
  );
  return { router, link: screen.getByRole("link", { name: "digits" }) };
}

it("a click follows a link without loading the page", async () => {
  const { router, link } = shown();
  expect(link).toHaveAttribute("href", "/jobs/b2");
  const click = createEvent.click(link);
  fireEvent(link, click);
  expect(click.defaultPrevented).toBe(true);
  await waitFor(() => expect(router.history.location.pathname).toBe("/jobs/b2"));
});

it.each(["ctrlKey", "metaKey", "shiftKey"])("a click with %s is the browser's", (key) => {
  const { router, link } = shown();
  let prevented: boolean | undefined;
  const ask = (event: Event) => {
    prevented = event.defaultPrevented;
    event.preventDefault();
  };
  document.addEventListener("click", ask, { once: true });
  fireEvent.click(link, { [key]: true });
  expect(prevented).toBe(false);
  expect(router.history.location.pathname).toBe("/");
});
