import {
  createMemoryHistory,
  createRootRoute,
  createRouter,
  RouterContextProvider,
} from "@tanstack/react-router";
import { screen, within } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
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

const POSITIONS = [
  { since: "2025-12-31T21:00:00Z", until: "2025-12-31T23:30:00Z", position: 7 },
  { since: "2025-12-31T23:30:00Z", until: "2026-01-01T00:00:00Z", position: 1 },
];

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllEnvs();
});

function showTimeline(positions = POSITIONS): void {
  const router = createRouter({ routeTree: createRootRoute(), history: createMemoryHistory() });
  const live = { events: new Signal([EVENT]) } as unknown as JobLive;
  shown(
    <RouterContextProvider router={router}>
      <TimelineTab job={job() as unknown as Job} live={live} />
    </RouterContextProvider>,
    {
      "GET /training/jobs/3f2a9c51d07b/attempts": { items: [ATTEMPT], next_cursor: null },
      "GET /training/jobs/3f2a9c51d07b/queue-history": { items: positions },
    },
  );
}

it("a node within the facts of an attempt is an underlined link", async () => {
  showTimeline();
  const link = await screen.findByRole("link", { name: "gpu-07" });
  expect(link).toHaveAttribute("data-underline", "always");
  expect(link.parentElement).toHaveTextContent("1 worker · rank 0 on gpu-07 (GPU 3)");
});

it("names the zone once, and an event of another names its own", async () => {
  vi.stubEnv("TZ", "Europe/Berlin");
  vi.useFakeTimers({ now: new Date("2026-07-01T12:00:00Z"), toFake: ["Date"] });
  showTimeline();
  expect(await screen.findByText("Times in UTC+2")).toBeVisible();
  const item = screen.getByText("2026-01-01 01:00:00 UTC+1", { selector: "li time" });
  expect(item).toHaveAttribute("datetime", EVENT.time);
});

it("lists how long the job waited at which position", async () => {
  showTimeline();
  const card = await screen.findByRole("region", { name: "Position in the queue" });
  expect(card).toHaveTextContent("Waited for 3 h: position 7 at first, at last 1");
  const rows = within(card).getAllByRole("row", { hidden: true });
  expect(rows[1]).toHaveTextContent("72 h 30 min2025-12-31 21:00:00");
});

it("says of a job that never moved that it had its position all along", async () => {
  showTimeline(POSITIONS.slice(0, 1));
  const card = await screen.findByRole("region", { name: "Position in the queue" });
  expect(card).toHaveTextContent(/position 7 all along/);
  expect(card.querySelector("svg")).toBeNull();
});
