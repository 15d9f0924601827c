import {
  createMemoryHistory,
  createRootRoute,
  createRouter,
  RouterContextProvider,
} from "@tanstack/react-router";
import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import type { Job, JobEvent } from "@/shared/api/types";
import type { JobLive } from "@/shared/live/job-live";
import { Signal } from "@/shared/live/signal";
import { job } from "@/test/fake-api";
import { shown } from "@/test/shown";
import { TimelineTab } from "./timeline-tab";

const ATTEMPT = {
  attempt: 1,
  generation: 1,
  state: "running",
  reason: "",
  world_size: 1,
  allocation: [
    {
      node_id: "n1",
      node_name: "gpu-07",
      node_rank: 0,
      ranks: [{ rank: 0, local_rank: 0, device_kind: "cuda", device_index: 3 }],
    },
  ],
  generations: [],
  started_at: "2026-01-01T00:00:00Z",
  finished_at: null,
  failure: null,
  timeline: [],
};
const EVENT: JobEvent = {
  seq: 1,
  time: "2026-01-01T00:00:00Z",
  kind: "state",
  code: "submitted",
  reason: "submitted",
  attempt: null,
  data: { state: "queued" },
};

it("a node within the facts of an attempt is an underlined link", async () => {
  const router = createRouter({ routeTree: createRootRoute(), history: createMemoryHistory() });
  const live = { events: new Signal([EVENT]) } as unknown as JobLive;
  shown(
    <RouterContextProvider router={router}>
      <TimelineTab job={job() as unknown as Job} live={live} />
    </RouterContextProvider>,
    { "GET /training/jobs/3f2a9c51d07b/attempts": { items: [ATTEMPT], next_cursor: null } },
  );
  const link = await screen.findByRole("link", { name: "gpu-07" });
  expect(link).toHaveAttribute("data-underline", "always");
  expect(link.parentElement).toHaveTextContent("1 worker · rank 0 on gpu-07 (GPU 3)");
});
