import { screen } from "@testing-library/react";
import { afterEach, expect, it, vi } from "vitest";
import { shown } from "@/test/shown";
import { NodeEvents } from "./node-events";

afterEach(() => {
  vi.unstubAllEnvs();
  vi.useRealTimers();
});

it("the header names the time zone, and rows of another name theirs", async () => {
  vi.stubEnv("TZ", "Europe/Berlin");
  vi.useFakeTimers({ now: new Date("2026-10-25T12:00:00Z"), toFake: ["Date"] });
  const event = (time: string) => ({ time, state: "ready", code: "joined", reason: "joined" });
  shown(<NodeEvents id="n1" name="gpu-07" />, {
    "GET /cluster/nodes/n1/events": {
      items: [event("2026-10-25T00:30:00Z"), event("2026-10-25T01:30:00Z")],
      next_cursor: null,
    },
  });
  expect(await screen.findByRole("columnheader", { name: "Time (UTC+1)" })).toBeVisible();
  const times = screen.getAllByText(/^02:30:00/).map(({ textContent }) => textContent);
  expect(times).toEqual(["02:30:00", "02:30:00 UTC+2"]);
});
