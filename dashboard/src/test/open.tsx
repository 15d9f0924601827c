import { createMemoryHistory } from "@tanstack/react-router";
import { render, waitFor } from "@testing-library/react";
import { expect } from "vitest";
import { App } from "@/app/app";
import { router } from "@/app/router";
import { fakeApi } from "./fake-api";

const SUMMARY = {
  nodes: 1,
  devices: 2,
  devices_busy: 2,
  jobs: { running: 1, paused: 1 },
  utilization: 50,
  memory_used: 1,
  memory_total: 2,
  power: null,
};
/** A list of one page. */
export const list = (...items: unknown[]) => ({ items, next_cursor: null });

/** Opens a page of the dashboard in front of `fakeApi`; what it asks. */
export async function open(path: string, answers: Record<string, unknown>): Promise<Request[]> {
  const asked = fakeApi({ "GET /metrics/cluster/summary": SUMMARY, ...answers });
  router.update({ history: createMemoryHistory({ initialEntries: [path] }) });
  render(<App />);
  await router.load();
  // What opens a menu on a page that is still loading is lost with that page.
  await waitFor(() => expect(router.state.status).toBe("idle"));
  return asked;
}
