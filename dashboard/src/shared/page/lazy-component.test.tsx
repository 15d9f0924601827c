import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { shown } from "@/test/shown";
import { lazyComponent } from "./lazy-component";

const reload = vi.fn();
const { location } = window;

beforeEach(() => vi.stubGlobal("location", { href: location.href, reload }));
afterEach(() => {
  vi.stubGlobal("location", location);
  sessionStorage.clear();
  reload.mockReset();
});

const Part = ({ name }: { name: string }) => <p>the part {name}</p>;
const failure = () => Promise.reject(new TypeError("Failed to fetch"));
const unreachable = {
  "GET /healthz": () => {
    throw new TypeError("Failed to fetch");
  },
};

it("shows what it loads", async () => {
  const Lazy = lazyComponent(async () => ({ default: Part }), "the part");
  shown(<Lazy name="one" />);
  expect(await screen.findByText("the part one")).toBeVisible();
});

it("keeps the page and retries while the coordinator is unreachable", async () => {
  let down = true;
  const load = () => (down ? failure() : Promise.resolve({ default: Part }));
  const Lazy = lazyComponent(load, "the part");
  await Lazy.preload();
  shown(<Lazy name="one" />, unreachable);
  expect(await screen.findByText("Could not load the part")).toBeVisible();
  expect(screen.getByText(/this page retries automatically/)).toBeVisible();
  down = false;
  await userEvent.click(screen.getByRole("button", { name: "Try again" }));
  expect(await screen.findByText("the part one")).toBeVisible();
  expect(reload).not.toHaveBeenCalled();
});

it("reloads the page once when the coordinator no longer has the file", async () => {
  const Lazy = lazyComponent<{ name: string }>(failure, "the part");
  shown(<Lazy name="one" />, { "GET /healthz": { status: "ok", version: "1" } });
  await waitFor(() => expect(reload).toHaveBeenCalledTimes(1));
  await userEvent.click(await screen.findByRole("button", { name: "Try again" }));
  expect(await screen.findByText(/Reload the page/)).toBeVisible();
  expect(reload).toHaveBeenCalledTimes(1);
});
